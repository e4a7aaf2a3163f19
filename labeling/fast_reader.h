/* A reader of XML for the common case: UTF-8, namespaces, no DOCTYPE.

   It reads a document in two stages. The first looks at all bytes, a block at a time: whether they
   are UTF-8, and characters that XML has. The second goes from mark to mark and writes the columns
   of the nodes; it need not look at characters any more. The reader accepts only documents
   that libxml2 accepts without any complaint, and then writes the same columns. Whatever is rare
   (a DOCTYPE, another encoding, unusual URIs, very long names and values, many attributes) and
   whatever is wrong makes it give up; the caller then asks libxml2, which reads the document or
   says what is wrong with it. So there are no error messages here.

   Ownership: `fm_reader` owns its names, which stay from document to document until `fm_forget`.
   The columns belong to the caller; `grow` gives more of them.
   Threads: one reader serves one thread at a time. Nothing here needs the GIL.
   Reads: no byte behind the input but the zero that every bytes object of Python ends with. */

#ifndef FMWARE_FAST_READER_H
#define FMWARE_FAST_READER_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define FM_X86 1
#include <immintrin.h>
#endif

/* Why a document was left to libxml2. */
enum fm_reason {
    FM_READ = 0,     /* it was not: the document is read */
    FM_MARKUP,       /* markup that is wrong, or that libxml2 knows better */
    FM_DOCTYPE,
    FM_ENCODING,     /* declared to be something else than UTF-8 */
    FM_CHARACTER,    /* a character that XML does not have, or bytes that are not UTF-8 */
    FM_NAME,         /* a name that is long, or none, or with an unknown prefix */
    FM_ATTRIBUTES,   /* very many of them, or the same one twice */
    FM_NAMESPACE,    /* an unusual URI, or very many declarations */
    FM_REFERENCE,    /* to an entity that is not predefined */
    FM_SIZE,         /* deep, or a long value, or over a limit */
    FM_MEMORY,
    FM_REASONS
};

enum { FM_ELEMENT = 0, FM_ATTRIBUTE = 1, FM_TEXT = 2 };

enum {
    FM_DEPTH = 200,           /* below that of libxml2, which counts in its own way */
    FM_NAME_BYTES = 200,
    FM_URI_BYTES = 500,
    FM_MANY_ATTRIBUTES = 32,  /* those with prefixes are compared each with each */
    FM_DECLARATIONS = 64,     /* in force at once */
    FM_VALUE_BYTES = 1000000, /* of a text, a comment or an instruction: libxml2 has 10 million */
    FM_PROBES = 32,           /* slots that a name may be away from its own */
};

/* A local name, a prefix or a namespace: one object for equal strings. */
typedef struct fm_string {
    struct fm_string* next;   /* of all strings */
    const struct fm_string* bound; /* of a prefix: the namespace that it stands for now, or NULL */
    uint64_t hash;
    uint32_t length;
    uint8_t usual;            /* of a namespace: whether libxml2 has nothing to say about it */
    char text[];              /* ends with a zero */
} fm_string;

/* A name as it is written, with its prefix. */
typedef struct fm_name {
    struct fm_name* next;     /* of all names */
    uint64_t first, second;   /* its first sixteen bytes, zeros behind a shorter one */
    uint64_t tail;
    uint64_t seen;            /* the start tag that last had it as an attribute */
    uint32_t length;
    uint8_t is_odd;           /* to be left to libxml2 */
    fm_string* prefix;        /* the empty one, if it has none */
    fm_string* local;
    fm_string* declares;      /* of an attribute that declares a namespace: the prefix */
    /* The id that the name had last, as an element and as an attribute, with its namespace. */
    const fm_string* element_space;
    const fm_string* attribute_space;
    uint32_t element_stamp, attribute_stamp;
    int32_t element_tag, attribute_tag;
    char text[];
} fm_name;

typedef struct {
    const fm_name* name;
    uint32_t declared;        /* declarations in force around the element */
    int32_t row;
} fm_open;

typedef struct {
    fm_string* prefix;
    const fm_string* before;  /* what the prefix stood for around the element */
} fm_declaration;

typedef struct {
    fm_name* name;
    int32_t row;
} fm_attribute;

/* A place in the table of names, with the first bytes of its name beside it. */
typedef struct {
    uint64_t first, second;
    fm_name* name;
    uint64_t tail;            /* of a name over sixteen bytes: its last eight and its length */
} fm_slot;

/* Where reading is. The second stage has it in a variable of its own, so that no store to a column
   can be one to this. */
typedef struct {
    int64_t tick;
    int32_t rows;
    int32_t length;           /* of all values */
    int32_t parent;
    int32_t joined;           /* the text row that adjacent text belongs to, or -1 */
    int32_t level;
    int32_t nesting;          /* open elements */
} fm_place;

typedef struct fm_reader fm_reader;

/* The id of a name in a namespace (NULL: none), or `FM_NO_TAG` if the document cannot be read. */
typedef int32_t (*fm_resolve)(void* owner, const char* local, const char* uri);
/* Makes room for more rows and sets the columns of the reader; 0 if there can be no more. */
typedef int (*fm_grow)(void* owner, fm_reader* reader);

#define FM_NO_TAG INT32_MIN

struct fm_reader {
    /* What the caller sets for each document. */
    void* owner;
    fm_resolve resolve;
    fm_grow grow;
    uint8_t* kinds;
    int32_t* tags;
    int32_t* parents;
    int16_t* levels;
    int64_t* starts;
    int64_t* ends;
    int32_t* offsets;
    int32_t rows, capacity;
    char* text;               /* room for as many bytes as the document has, and 64 more */
    int32_t length;
    int32_t depth;            /* limits, as in Bounds */
    int32_t attribute_bytes;
    int32_t text_bytes;
    int values, blanks;       /* whether values are kept, and blank text is a node */
    int64_t tick;             /* the first AD label */
    /* If `firsts` is set, the document is a root around records, as RecordParser has it. */
    const int64_t* bases;
    const int16_t* record_levels;
    int64_t* firsts;
    ptrdiff_t records;
    int32_t record_nodes;
    /* What the reader says of the document. */
    int32_t elements;         /* how many had begun */
    ptrdiff_t met;            /* records that had begun */
    /* Its own. */
    uint64_t seed;
    uint32_t stamp;           /* of documents in which an id of a name stays the same */
    uint64_t start_tags;      /* of all documents */
    uint64_t keys[3];         /* odd numbers, for hashing names */
    int32_t longest_attribute, longest_text; /* the limits here and the caller's, whichever is less */
    int as_is;                /* text stays as it is written down */
    fm_place place;           /* while something rare is read */
    uint32_t declared;
    const char* document;
    size_t held;              /* bytes of all names and strings */
    fm_string* all_strings;
    fm_name* all_names;
    fm_string** strings;
    fm_slot* names;
    uint32_t string_count, string_size, name_count, name_size;
    fm_string* empty;
    fm_open open[FM_DEPTH + 1];
    fm_declaration declarations[FM_DECLARATIONS];
    fm_attribute attributes[FM_MANY_ATTRIBUTES]; /* those with a prefix */
};

/* --- characters ------------------------------------------------------------------------------ */

enum {
    FM_START = 1,             /* begins a name */
    FM_IN_NAME = 2,           /* goes on in a name */
    FM_BLANK = 4,
    FM_PLAIN = 8,             /* text that is copied as it is */
    FM_QUOTED = 16,           /* the same in an attribute, but for the quotation marks */
    FM_IN_URI = 32,           /* goes on in the path of a usual URI */
    FM_CONTROL = 64,          /* ASCII that no document may have */
};

static uint8_t fm_class[256];
/* Which bytes of two words belong to a name of up to sixteen bytes. */
static uint64_t fm_name_masks[17][2];

static void fm_begin(void) {
    int c;
    for (c = 0; c < 256; c++) {
        int letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        int digit = c >= '0' && c <= '9';
        uint8_t bits = 0;
        if (letter || c == '_') bits |= FM_START;
        if (letter || digit || c == '_' || c == '-' || c == '.') bits |= FM_IN_NAME;
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') bits |= FM_BLANK;
        if ((c >= ' ' || c == '\t' || c == '\n') && c != '<' && c != '&' && c != '>')
            bits |= FM_PLAIN;
        if (c >= ' ' && c != '<' && c != '&' && c != '"' && c != '\'') bits |= FM_QUOTED;
        if (letter || digit || c == '-' || c == '.' || c == '_' || c == '~' || c == '/')
            bits |= FM_IN_URI;
        if (c < ' ' && !(bits & FM_BLANK)) bits |= FM_CONTROL;
        fm_class[c] = bits;
    }
    for (c = 0; c < 16; c++) memset((char*)fm_name_masks[c + 1], 0xff, (size_t)c + 1);
}

static inline int fm_is(char c, int bits) { return fm_class[(uint8_t)c] & bits; }

static inline const char* fm_blanks(const char* p) {
    while (fm_is(*p, FM_BLANK)) p++;
    return p;
}

/* The bytes of a character that is not ASCII, or 0 if it is none that XML has. The zero behind
   the input is no byte of a longer character, so this never looks further. */
static inline int fm_wide(const uint8_t* p) {
    uint8_t c = p[0];
    if (c < 0xc2) return 0;
    if ((p[1] & 0xc0) != 0x80) return 0;
    if (c < 0xe0) return 2;
    if ((p[2] & 0xc0) != 0x80) return 0;
    if (c < 0xf0) {
        if (c == 0xe0 && p[1] < 0xa0) return 0;
        if (c == 0xed && p[1] > 0x9f) return 0;
        if (c == 0xef && p[1] == 0xbf && p[2] > 0xbd) return 0;
        return 3;
    }
    if (c > 0xf4 || (p[3] & 0xc0) != 0x80) return 0;
    if (c == 0xf0 && p[1] < 0x90) return 0;
    if (c == 0xf4 && p[1] > 0x8f) return 0;
    return 4;
}

/* The character, which is not ASCII, that begins at `p`, and its bytes. REQUIRES: fm_valid. */
static inline int fm_decode(const uint8_t* p, uint32_t* c) {
    if (p[0] < 0xe0) {
        *c = (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
        return 2;
    }
    if (p[0] < 0xf0) {
        *c = (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
        return 3;
    }
    *c = (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
    return 4;
}

/* Whether names have a character that is not ASCII, at their start or further on: XML 1.0, fifth
   edition, [4] and [4a]. */
static int fm_is_wide_name(uint32_t c, int starts) {
    static const uint32_t ranges[][2] = {
        {0xc0, 0xd6}, {0xd8, 0xf6}, {0xf8, 0x2ff}, {0x370, 0x37d}, {0x37f, 0x1fff},
        {0x200c, 0x200d}, {0x2070, 0x218f}, {0x2c00, 0x2fef}, {0x3001, 0xd7ff},
        {0xf900, 0xfdcf}, {0xfdf0, 0xfffd}, {0x10000, 0xeffff},
    };
    size_t i;
    for (i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return 1;
    return !starts && (c == 0xb7 || (c >= 0x300 && c <= 0x36f) || c == 0x203f || c == 0x2040);
}

/* A character in UTF-8; the number of its bytes, or 0 if XML does not have it. */
static inline int fm_encode(uint32_t c, char* out) {
    if (c < 0x80) {
        if (c < 0x20 && c != '\t' && c != '\n' && c != '\r') return 0;
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        if ((c >= 0xd800 && c < 0xe000) || c > 0xfffd) return 0;
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    if (c > 0x10ffff) return 0;
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* The reference that begins at `p`, which is a '&': writes its character and moves `p` behind it.
   The number of bytes written, never more than were read; 0 for any other reference. */
static int fm_reference(const char** at, char* out) {
    const char* p = *at + 1;
    int size;
    if (*p == '#') {
        uint32_t c = 0;
        int digits = 0, base = 10;
        p++;
        if (*p == 'x') {
            base = 16;
            p++;
        }
        for (; digits < 8; digits++, p++) {
            uint32_t digit;
            if (*p >= '0' && *p <= '9') digit = (uint32_t)(*p - '0');
            else if (base == 16 && *p >= 'a' && *p <= 'f') digit = (uint32_t)(*p - 'a') + 10;
            else if (base == 16 && *p >= 'A' && *p <= 'F') digit = (uint32_t)(*p - 'A') + 10;
            else break;
            c = c * (uint32_t)base + digit;
        }
        if (digits == 0 || digits == 8 || *p != ';') return 0;
        size = fm_encode(c, out);
        *at = p + 1;
        return size;
    }
    if (p[0] == 'l' && p[1] == 't' && p[2] == ';') *out = '<', size = 4;
    else if (p[0] == 'g' && p[1] == 't' && p[2] == ';') *out = '>', size = 4;
    else if (p[0] == 'a' && p[1] == 'm' && p[2] == 'p' && p[3] == ';') *out = '&', size = 5;
    else if (p[0] == 'q' && p[1] == 'u' && p[2] == 'o' && p[3] == 't' && p[4] == ';')
        *out = '"', size = 6;
    else if (p[0] == 'a' && p[1] == 'p' && p[2] == 'o' && p[3] == 's' && p[4] == ';')
        *out = '\'', size = 6;
    else return 0;
    *at += size;
    return 1;
}

/* --- names ----------------------------------------------------------------------------------- */

static uint64_t fm_hash(uint64_t seed, const char* text, size_t length) {
    uint64_t hash = seed ^ length, word;
    while (length >= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
        text += 8;
        length -= 8;
    }
    word = 0;
    memcpy(&word, text, length);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

/* Whether libxml2 takes a URI for an absolute and valid one; there are more that it does. */
static int fm_usual_uri(const char* uri, size_t length) {
    const char* p = uri;
    const char* end = uri + length;
    if (length > FM_URI_BYTES || !fm_is(*p, FM_START) || *p == '_') return 0;
    while (p < end && fm_is(*p, FM_IN_NAME) && *p != '_') p++;
    if (p == end || *p++ != ':') return 0;
    if (end - p > 2 && p[0] == '/' && p[1] == '/') {
        p += 2;
        if (!fm_is(*p, FM_START)) return 0;
        while (p < end && fm_is(*p, FM_IN_NAME) && *p != '_') p++;
        if (p < end && *p != '/') return 0;
        while (p < end && fm_is(*p, FM_IN_URI)) p++;
    } else {
        if (p == end || !fm_is(*p, FM_IN_NAME)) return 0;
        while (p < end && (fm_is(*p, FM_IN_URI) || *p == ':')) p++;
    }
    if (p < end && *p == '#') {
        p++;
        while (p < end && fm_is(*p, FM_IN_URI)) p++;
    }
    return p == end;
}

static int fm_more_strings(fm_reader* r) {
    uint32_t size = r->string_size ? r->string_size * 2 : 64, at;
    fm_string** slots = calloc(size, sizeof(*slots));
    fm_string* each;
    if (slots == NULL) return 0;
    for (each = r->all_strings; each != NULL; each = each->next) {
        for (at = (uint32_t)each->hash & (size - 1); slots[at] != NULL;) at = (at + 1) & (size - 1);
        slots[at] = each;
    }
    free(r->strings);
    r->held += (size - r->string_size) * sizeof(*slots);
    r->strings = slots;
    r->string_size = size;
    return 1;
}

/* The one object of a string; NULL without memory, or if too many others are in its place. */
static fm_string* fm_intern(fm_reader* r, const char* text, uint32_t length) {
    uint64_t hash = fm_hash(r->seed, text, length);
    uint32_t at, probes = 0;
    fm_string* found;
    if (r->string_count * 2 >= r->string_size && !fm_more_strings(r)) return NULL;
    at = (uint32_t)hash & (r->string_size - 1);
    while ((found = r->strings[at]) != NULL) {
        if (found->hash == hash && found->length == length && !memcmp(found->text, text, length))
            return found;
        if (++probes == FM_PROBES) return NULL;
        at = (at + 1) & (r->string_size - 1);
    }
    found = calloc(1, sizeof(*found) + length + 1);
    if (found == NULL) return NULL;
    memcpy(found->text, text, length);
    found->hash = hash;
    found->length = length;
    found->usual = (uint8_t)fm_usual_uri(found->text, length);
    found->next = r->all_strings;
    r->all_strings = found;
    r->strings[at] = found;
    r->string_count++;
    r->held += sizeof(*found) + length + 1;
    return found;
}

/* Where a name belongs: a sum of products with secret odd numbers, of which the upper bits count. */
static inline uint32_t fm_name_slot(const fm_reader* r, uint64_t first, uint64_t second,
                                    uint64_t tail) {
    uint64_t hash = first * r->keys[0] + second * r->keys[1] + tail * r->keys[2];
    return (uint32_t)((hash ^ hash >> 32) >> 16) & (r->name_size - 1);
}

static inline uint64_t fm_tail(const char* text, uint32_t length) {
    uint64_t tail = 0;
    if (length > 16) {
        memcpy(&tail, text + length - 8, 8);
        tail ^= length;
    }
    return tail;
}

static void fm_put_name(fm_reader* r, fm_slot* slots, fm_name* name) {
    uint32_t at = fm_name_slot(r, name->first, name->second, name->tail);
    while (slots[at].name != NULL) at = (at + 1) & (r->name_size - 1);
    slots[at].first = name->first;
    slots[at].second = name->second;
    slots[at].tail = name->tail;
    slots[at].name = name;
}

static int fm_more_names(fm_reader* r) {
    uint32_t before = r->name_size;
    fm_slot* slots = calloc(before ? before * 2 : 256, sizeof(*slots));
    fm_name* each;
    if (slots == NULL) return 0;
    r->name_size = before ? before * 2 : 256;
    for (each = r->all_names; each != NULL; each = each->next) fm_put_name(r, slots, each);
    free(r->names);
    r->held += (r->name_size - before) * sizeof(*slots);
    r->names = slots;
    return 1;
}

static fm_name* fm_new_name(fm_reader* r, const char* text, uint32_t length, uint32_t colon,
                            const uint64_t* words, uint64_t tail) {
    fm_name* name;
    uint32_t local = colon ? colon + 1 : 0;
    /* A quarter full at most: most names are then in their own places. */
    if (r->name_count * 4 >= r->name_size && !fm_more_names(r)) return NULL;
    name = calloc(1, sizeof(*name) + length);
    if (name == NULL) return NULL;
    memcpy(name->text, text, length);
    name->length = length;
    name->first = words[0];
    name->second = words[1];
    name->tail = tail;
    name->prefix = colon ? fm_intern(r, text, colon) : r->empty;
    name->local = fm_intern(r, text + local, length - local);
    if (name->prefix == NULL || name->local == NULL) {
        free(name);
        return NULL;
    }
    if (!colon && length == 5 && !memcmp(text, "xmlns", 5)) name->declares = r->empty;
    if (colon == 5 && !memcmp(text, "xmlns", 5)) {
        name->declares = name->local;
        name->is_odd = (length == 9 && !memcmp(text, "xmlns:xml", 9))
            || (length == 11 && !memcmp(text, "xmlns:xmlns", 11));
    }
    /* libxml2 looks at the value of this one. */
    if (length == 9 && !memcmp(text, "xml:space", 9)) name->is_odd = 1;
    name->next = r->all_names;
    r->all_names = name;
    fm_put_name(r, r->names, name);
    r->name_count++;
    r->held += sizeof(*name) + length;
    return name;
}

/* The first sixteen bytes of a name as two words. */
static inline void fm_words(const char* text, uint32_t length, const char* end, uint64_t* words) {
    uint32_t most = length < 16 ? length : 16;
    if (end - text >= 16) {
        memcpy(words, text, 16);
        words[0] &= fm_name_masks[most][0];
        words[1] &= fm_name_masks[most][1];
    } else {
        words[0] = words[1] = 0;
        memcpy(words, text, most);
    }
}

/* The name of these bytes if it was met before; NULL if not, or if too many others are in its place,
   which `crowded` says. */
static inline fm_name* fm_met_name(const fm_reader* r, const char* text, uint32_t length,
                                   const uint64_t* words, uint64_t tail, int* crowded) {
    uint32_t at = fm_name_slot(r, words[0], words[1], tail), probes = 0;
    const fm_slot* slot;
    while ((slot = &r->names[at])->name != NULL) {
        if (((slot->first ^ words[0]) | (slot->second ^ words[1]) | (slot->tail ^ tail)) == 0
            && (length <= 16 || (slot->name->length == length
                                 && !memcmp(slot->name->text + 16, text + 16, length - 16))))
            return slot->name;
        if (++probes == FM_PROBES) {
            *crowded = 1;
            return NULL;
        }
        at = (at + 1) & (r->name_size - 1);
    }
    return NULL;
}

/* Where a name without a colon ends; NULL if none begins here. */
static const char* fm_name_end(const char* p) {
    int bits = FM_START;
    for (;; bits = FM_IN_NAME) {
        if (fm_is(*p, bits)) {
            p++;
        } else if ((uint8_t)*p >= 0x80) {
            uint32_t c;
            int size = fm_decode((const uint8_t*)p, &c);
            if (!fm_is_wide_name(c, bits == FM_START)) return NULL;
            p += size;
        } else {
            return bits == FM_START ? NULL : p;
        }
    }
}

/* The name that begins at `at`, which moves behind it; NULL if it is to be left to libxml2. */
static fm_name* fm_scan_name(fm_reader* r, const char** at, const char* end) {
    const char* begin = *at;
    const char* p = fm_name_end(begin);
    uint64_t words[2], tail;
    uint32_t colon = 0, length;
    int crowded = 0;
    fm_name* found;
    if (p != NULL && *p == ':') {
        colon = (uint32_t)(p - begin);
        p = fm_name_end(p + 1);
    }
    if (p == NULL || *p == ':' || p - begin > FM_NAME_BYTES) return NULL;
    *at = p;
    length = (uint32_t)(p - begin);
    tail = fm_tail(begin, length);
    fm_words(begin, length, end, words);
    found = fm_met_name(r, begin, length, words, tail, &crowded);
    if (found != NULL || crowded) return found;
    return fm_new_name(r, begin, length, colon, words, tail);
}

static inline int32_t fm_element_tag(fm_reader* r, fm_name* name) {
    const fm_string* space = name->prefix->bound;
    if (name->element_stamp == r->stamp && name->element_space == space) return name->element_tag;
    if (name->is_odd || (space == NULL && name->prefix != r->empty)) return FM_NO_TAG;
    name->element_tag = r->resolve(r->owner, name->local->text, space ? space->text : NULL);
    name->element_space = space;
    name->element_stamp = name->element_tag == FM_NO_TAG ? 0 : r->stamp;
    return name->element_tag;
}

static inline int32_t fm_attribute_tag(fm_reader* r, fm_name* name) {
    const fm_string* space = name->prefix == r->empty ? NULL : name->prefix->bound;
    if (name->attribute_stamp == r->stamp && name->attribute_space == space)
        return name->attribute_tag;
    if (name->is_odd || (space == NULL && name->prefix != r->empty)) return FM_NO_TAG;
    name->attribute_tag = r->resolve(r->owner, name->local->text, space ? space->text : NULL);
    name->attribute_space = space;
    name->attribute_stamp = name->attribute_tag == FM_NO_TAG ? 0 : r->stamp;
    return name->attribute_tag;
}

/* Whether two of the attributes with a prefix are the same by namespace. That the same is written
   twice is seen before. */
static int fm_twice(fm_reader* r, int count) {
    int i, j;
    for (i = 1; i < count; i++) {
        fm_name* one = r->attributes[i].name;
        for (j = 0; j < i; j++) {
            fm_name* other = r->attributes[j].name;
            if (one->local == other->local && one->prefix->bound == other->prefix->bound) return 1;
        }
    }
    return 0;
}

static void fm_undeclare(fm_reader* r, uint32_t mark) {
    while (r->declared > mark) {
        fm_declaration* each = &r->declarations[--r->declared];
        each->prefix->bound = each->before;
    }
}

/* Free all names. The reader can be used again after `fm_prepare`. */
static void fm_forget(fm_reader* r) {
    while (r->all_strings != NULL) {
        fm_string* next = r->all_strings->next;
        free(r->all_strings);
        r->all_strings = next;
    }
    while (r->all_names != NULL) {
        fm_name* next = r->all_names->next;
        free(r->all_names);
        r->all_names = next;
    }
    free(r->strings);
    free(r->names);
    r->strings = NULL;
    r->names = NULL;
    r->string_size = r->string_count = r->name_size = r->name_count = 0;
    r->held = 0;
    r->declared = 0;
    r->empty = NULL;
}

/* Ready for a document; 0 without memory. With `afresh`, the ids of names are asked for again. */
static int fm_prepare(fm_reader* r, uint64_t seed, int afresh) {
    static const char* const reserved = "http://www.w3.org/2000/xmlns/";
    static const char* const standard = "http://www.w3.org/XML/1998/namespace";
    fm_string *xml, *space, *xmlns;
    size_t i;
    if (r->empty != NULL && r->stamp != UINT32_MAX) {
        r->stamp += (uint32_t)afresh;
        return 1;
    }
    fm_forget(r);
    r->seed = seed;
    for (i = 0; i < 3; i++) r->keys[i] = fm_hash(seed, "names" + i, 5 - i) | 1;
    r->stamp = 1;
    if (!fm_more_names(r)) return 0;
    r->empty = fm_intern(r, "", 0);
    xml = fm_intern(r, "xml", 3);
    space = fm_intern(r, standard, (uint32_t)strlen(standard));
    xmlns = fm_intern(r, reserved, (uint32_t)strlen(reserved));
    if (r->empty == NULL || xml == NULL || space == NULL || xmlns == NULL) {
        fm_forget(r);
        return 0;
    }
    xml->bound = space;
    space->usual = xmlns->usual = 0;
    return 1;
}

/* The same code for two instruction sets. All that has the place in hand is inlined: then it stays
   in registers. */

#if defined(__GNUC__)
#define FM_INLINE static inline __attribute__((always_inline))
#else
#define FM_INLINE static inline
#endif

#define FM_AS(name) name##_portable
#include "fast_reader_body.h"
#undef FM_AS

#ifdef FM_X86
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,lzcnt")
#define FM_AVX2 1
#define FM_AS(name) name##_avx2
#include "fast_reader_body.h"
#undef FM_AS
#undef FM_AVX2
#pragma GCC pop_options
#endif

static int fm_has_avx2(void) {
#ifdef FM_X86
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
#else
    return 0;
#endif
}

/* `fm_rows_of`, with AVX2 or without. */
static size_t fm_count_rows(const char* text, size_t size, int avx2) {
#ifdef FM_X86
    if (avx2) return fm_rows_of_avx2(text, size);
#endif
    (void)avx2;
    return fm_rows_of_portable(text, size);
}

/* Read a document: FM_READ, or why it is left to libxml2. REQUIRES: `fm_prepare` succeeded, and
   text[size] is zero. */
static int fm_read(fm_reader* r, const char* text, size_t size, int avx2) {
    int reason;
#ifdef FM_X86
    if (avx2) reason = fm_document_avx2(r, text, text + size);
    else
#endif
    reason = fm_document_portable(r, text, text + size);
    (void)avx2;
    fm_undeclare(r, 0);
    return reason;
}

#endif
