/* The reading itself, included by fast_reader.h once for each instruction set, under the names
   that FM_AS makes. A function returns where reading goes on, or NULL with the reason set. */

#define fm_give_up(why) do { *reason = (why); return NULL; } while (0)

/* Copy text that needs no care to `out`; where the first byte that needs it is. Bytes behind
   those that count may be written. */
static inline const char* FM_AS(fm_plain)(const char* p, const char* end, char* out) {
    const char* begin = p;
#if defined(FM_AVX2)
    const __m256i blank = _mm256_set1_epi8(0x20), tab = _mm256_set1_epi8('\t');
    const __m256i line = _mm256_set1_epi8('\n'), less = _mm256_set1_epi8('<');
    const __m256i and = _mm256_set1_epi8('&'), bracket = _mm256_set1_epi8(']');
    while (end - p >= 32) {
        __m256i block = _mm256_loadu_si256((const __m256i*)p);
        __m256i low = _mm256_cmpgt_epi8(blank, block); /* control characters, and not ASCII */
        __m256i spaces = _mm256_or_si256(_mm256_cmpeq_epi8(block, tab),
                                         _mm256_cmpeq_epi8(block, line));
        __m256i marks = _mm256_or_si256(_mm256_or_si256(_mm256_cmpeq_epi8(block, less),
                                                        _mm256_cmpeq_epi8(block, and)),
                                        _mm256_cmpeq_epi8(block, bracket));
        uint32_t hits = (uint32_t)_mm256_movemask_epi8(
            _mm256_or_si256(_mm256_andnot_si256(spaces, low), marks));
        _mm256_storeu_si256((__m256i*)(out + (p - begin)), block);
        if (hits) return p + __builtin_ctz(hits);
        p += 32;
    }
#elif defined(FM_X86)
    const __m128i blank = _mm_set1_epi8(0x20), tab = _mm_set1_epi8('\t');
    const __m128i line = _mm_set1_epi8('\n'), less = _mm_set1_epi8('<');
    const __m128i and = _mm_set1_epi8('&'), bracket = _mm_set1_epi8(']');
    while (end - p >= 16) {
        __m128i block = _mm_loadu_si128((const __m128i*)p);
        __m128i low = _mm_cmplt_epi8(block, blank); /* control characters, and not ASCII */
        __m128i spaces = _mm_or_si128(_mm_cmpeq_epi8(block, tab), _mm_cmpeq_epi8(block, line));
        __m128i marks = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(block, less),
                                                  _mm_cmpeq_epi8(block, and)),
                                     _mm_cmpeq_epi8(block, bracket));
        int hits = _mm_movemask_epi8(_mm_or_si128(_mm_andnot_si128(spaces, low), marks));
        _mm_storeu_si128((__m128i*)(out + (p - begin)), block);
        if (hits) return p + __builtin_ctz((unsigned)hits);
        p += 16;
    }
#endif
    while (fm_is(*p, FM_PLAIN)) {
        out[p - begin] = *p;
        p++;
    }
    return p;
}

/* The same for the value of an attribute, up to a quotation mark of either sort. */
static inline const char* FM_AS(fm_quoted)(const char* p, const char* end, char* out) {
    const char* begin = p;
#if defined(FM_AVX2)
    const __m256i blank = _mm256_set1_epi8(0x20), less = _mm256_set1_epi8('<');
    const __m256i and = _mm256_set1_epi8('&'), quote = _mm256_set1_epi8('"');
    const __m256i apostrophe = _mm256_set1_epi8('\'');
    while (end - p >= 32) {
        __m256i block = _mm256_loadu_si256((const __m256i*)p);
        __m256i marks = _mm256_or_si256(
            _mm256_or_si256(_mm256_cmpeq_epi8(block, less), _mm256_cmpeq_epi8(block, and)),
            _mm256_or_si256(_mm256_cmpeq_epi8(block, quote),
                            _mm256_cmpeq_epi8(block, apostrophe)));
        uint32_t hits = (uint32_t)_mm256_movemask_epi8(
            _mm256_or_si256(_mm256_cmpgt_epi8(blank, block), marks));
        _mm256_storeu_si256((__m256i*)(out + (p - begin)), block);
        if (hits) return p + __builtin_ctz(hits);
        p += 32;
    }
#elif defined(FM_X86)
    const __m128i blank = _mm_set1_epi8(0x20), less = _mm_set1_epi8('<');
    const __m128i and = _mm_set1_epi8('&'), quote = _mm_set1_epi8('"');
    const __m128i apostrophe = _mm_set1_epi8('\'');
    while (end - p >= 16) {
        __m128i block = _mm_loadu_si128((const __m128i*)p);
        __m128i marks = _mm_or_si128(
            _mm_or_si128(_mm_cmpeq_epi8(block, less), _mm_cmpeq_epi8(block, and)),
            _mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, apostrophe)));
        int hits = _mm_movemask_epi8(_mm_or_si128(_mm_cmplt_epi8(block, blank), marks));
        _mm_storeu_si128((__m128i*)(out + (p - begin)), block);
        if (hits) return p + __builtin_ctz((unsigned)hits);
        p += 16;
    }
#endif
    while (fm_is(*p, FM_QUOTED)) {
        out[p - begin] = *p;
        p++;
    }
    return p;
}

/* `fm_scan_name`, for names of up to 15 bytes without a loop where there is AVX2. */
static inline fm_name* FM_AS(fm_name_at)(fm_reader* r, const char** at, const char* end) {
#if defined(FM_AVX2)
    /* A byte goes on in a name, or is a colon, if its upper and its lower half have a bit in
       common: 1 for - and ., 2 for digits and the colon, 4 for A to O and a to o, 8 for P to Z
       and _, 16 for p to z. */
    const __m128i upper = _mm_setr_epi8(0, 0, 1, 2, 4, 8, 4, 16, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m128i lower = _mm_setr_epi8(26, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 4, 4, 5, 5, 12);
    const char* p = *at;
    if (end - p >= 16) {
        const __m128i half = _mm_set1_epi8(15);
        __m128i block = _mm_loadu_si128((const __m128i*)p);
        __m128i low = _mm_shuffle_epi8(lower, _mm_and_si128(block, half));
        __m128i high = _mm_shuffle_epi8(upper, _mm_and_si128(_mm_srli_epi16(block, 4), half));
        uint32_t others = (uint32_t)_mm_movemask_epi8(
            _mm_cmpeq_epi8(_mm_and_si128(low, high), _mm_setzero_si128()));
        uint32_t length = (uint32_t)__builtin_ctz(others | 1u << 16), colon = 0;
        uint32_t colons = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(block, _mm_set1_epi8(':')));
        colons &= (1u << length) - 1;
        if (length < 16) {
            if (!fm_is(*p, FM_START) || (uint8_t)p[length] >= 0x80) return NULL;
            if (colons) {
                colon = (uint32_t)__builtin_ctz(colons);
                if (colons & (colons - 1) || !fm_is(p[colon + 1], FM_START)) return NULL;
            }
            *at = p + length;
            return fm_find_name(r, p, length, colon, end);
        }
    }
#endif
    return fm_scan_name(r, at, end);
}

/* Whether the document goes on with a name. */
static inline int FM_AS(fm_goes_on)(const char* p, const char* end, const fm_name* name) {
    uint32_t length = name->length;
    uint64_t first, last;
    if (end - p < 8 || length > 16) return end - p > (ptrdiff_t)length
        && !memcmp(p, name->text, length);
    memcpy(&first, p, 8);
    if (length < 8) return (first & (((uint64_t)1 << 8 * length) - 1)) == name->first;
    if (end - p <= (ptrdiff_t)length) return 0;
    memcpy(&last, p + length - 8, 8);
    return first == name->first && last == name->last;
}

/* Pass over a comment or an instruction up to its next '-' or '?', the byte `stop`. */
static const char* FM_AS(fm_pass)(const char* p, const char* end, char stop, int* reason) {
    for (;;) {
        int size;
        while (fm_is(*p, FM_OUTSIDE)) p++;
        if (*p == stop) return p;
        if (*p == '-' || *p == '?') {
            p++;
            continue;
        }
        size = fm_wide((const uint8_t*)p);
        if (size == 0 || p >= end) fm_give_up(p >= end ? FM_MARKUP : FM_CHARACTER);
        p += size;
    }
}

/* A comment, from behind its "<!--" to behind its end. */
static const char* FM_AS(fm_comment)(const char* p, const char* end, int* reason) {
    const char* begin = p;
    for (;;) {
        p = FM_AS(fm_pass)(p, end, '-', reason);
        if (p == NULL) return NULL;
        if (p[1] == '-') break;
        p++;
    }
    if (p[2] != '>') fm_give_up(FM_MARKUP);
    if (p - begin > FM_VALUE_BYTES) fm_give_up(FM_SIZE);
    return p + 3;
}

/* An instruction, from behind its "<?" to behind its end. */
static const char* FM_AS(fm_instruction)(const char* p, const char* end, int* reason) {
    const char* begin = p;
    if (!fm_is(*p, FM_START)) fm_give_up(FM_MARKUP);
    /* Names that begin with xml are reserved: libxml2 knows which of them there are. */
    if ((p[0] | 32) == 'x' && (p[1] | 32) == 'm' && (p[2] | 32) == 'l') fm_give_up(FM_MARKUP);
    while (fm_is(*p, FM_IN_NAME)) p++;
    if (p - begin > FM_NAME_BYTES) fm_give_up(FM_NAME);
    if (p[0] == '?' && p[1] == '>') return p + 2;
    if (!fm_is(*p, FM_BLANK)) fm_give_up(FM_MARKUP);
    for (;;) {
        p = FM_AS(fm_pass)(p, end, '?', reason);
        if (p == NULL) return NULL;
        if (p[1] == '>') break;
        p++;
    }
    if (p - begin > FM_VALUE_BYTES) fm_give_up(FM_SIZE);
    return p + 2;
}

/* A new row below the open element, or -1. */
static inline int32_t FM_AS(fm_row)(fm_reader* r, uint8_t kind, int32_t tag) {
    int32_t row = r->rows;
    if (row == r->capacity && !r->grow(r->owner, r)) return -1;
    r->rows = row + 1;
    r->kinds[row] = kind;
    r->tags[row] = tag;
    r->parents[row] = r->parent;
    r->levels[row] = r->level;
    r->starts[row] = r->tick;
    r->ends[row] = r->tick + 1;
    r->offsets[row] = r->length;
    return row;
}

/* Text is over. If blank text does not count and it is blank, it never was. */
static inline void FM_AS(fm_end_text)(fm_reader* r) {
    if (r->joined >= 0) {
        int32_t begin = r->offsets[r->joined];
        if (!r->blanks) {
            int32_t i = begin;
            while (i < r->length && fm_is(r->text[i], FM_BLANK)) i++;
            if (i == r->length) {
                r->rows--;
                r->tick -= 2;
                r->length = begin;
            }
        }
        if (!r->values) r->length = begin;
        r->joined = -1;
    }
}

/* Text is about to be written: it has its row. */
static inline int FM_AS(fm_begin_text)(fm_reader* r) {
    if (r->joined >= 0) return 1;
    /* Between records there must be nothing. */
    if (r->parent < 0) return 0;
    r->joined = FM_AS(fm_row)(r, FM_TEXT, 0);
    r->tick += 2;
    return r->joined >= 0;
}

static inline int FM_AS(fm_text_fits)(const fm_reader* r) {
    int32_t size = r->length - r->offsets[r->joined];
    return size <= r->text_bytes && size <= FM_VALUE_BYTES;
}

/* Text up to the next '<'. */
static inline const char* FM_AS(fm_text)(fm_reader* r, const char* p, const char* end,
                                         int* reason) {
    if (!FM_AS(fm_begin_text)(r)) fm_give_up(FM_SIZE);
    for (;;) {
        const char* next = FM_AS(fm_plain)(p, end, r->text + r->length);
        int size;
        r->length += (int32_t)(next - p);
        p = next;
        if (*p == '<') break;
        if (*p == '&') {
            size = fm_reference(&p, r->text + r->length);
            if (size == 0) fm_give_up(FM_REFERENCE);
            r->length += size;
        } else if (*p == ']') {
            if (p[1] == ']' && p[2] == '>') fm_give_up(FM_MARKUP);
            r->text[r->length++] = *p++;
        } else if (*p == '\r') {
            p += p[1] == '\n' ? 2 : 1;
            r->text[r->length++] = '\n';
        } else {
            size = fm_wide((const uint8_t*)p);
            if (size == 0) fm_give_up(p >= end ? FM_MARKUP : FM_CHARACTER);
            memcpy(r->text + r->length, p, (size_t)size);
            r->length += size;
            p += size;
        }
    }
    if (!FM_AS(fm_text_fits)(r)) fm_give_up(FM_SIZE);
    return p;
}

/* A CDATA section, from behind its "<![CDATA[" to behind its end. */
static const char* FM_AS(fm_section)(fm_reader* r, const char* p, const char* end, int* reason) {
    if (p[0] == ']' && p[1] == ']' && p[2] == '>') return p + 3;
    if (!FM_AS(fm_begin_text)(r)) fm_give_up(FM_SIZE);
    for (;;) {
        const char* next = FM_AS(fm_plain)(p, end, r->text + r->length);
        int size;
        r->length += (int32_t)(next - p);
        p = next;
        if (*p == ']' && p[1] == ']' && p[2] == '>') break;
        if (*p == '<' || *p == '&' || *p == ']') {
            r->text[r->length++] = *p++;
        } else if (*p == '\r') {
            p += p[1] == '\n' ? 2 : 1;
            r->text[r->length++] = '\n';
        } else {
            size = fm_wide((const uint8_t*)p);
            if (size == 0) fm_give_up(p >= end ? FM_MARKUP : FM_CHARACTER);
            memcpy(r->text + r->length, p, (size_t)size);
            r->length += size;
            p += size;
        }
    }
    if (!FM_AS(fm_text_fits)(r)) fm_give_up(FM_SIZE);
    return p + 3;
}

/* The value of an attribute, from behind its quotation mark to behind the other one. */
static inline const char* FM_AS(fm_value)(fm_reader* r, const char* p, const char* end, char quote,
                                          int* reason) {
    int32_t begin = r->length;
    for (;;) {
        const char* next = FM_AS(fm_quoted)(p, end, r->text + r->length);
        int size;
        r->length += (int32_t)(next - p);
        p = next;
        if (*p == quote) break;
        if (*p == '"' || *p == '\'') {
            r->text[r->length++] = *p++;
        } else if (*p == '&') {
            size = fm_reference(&p, r->text + r->length);
            if (size == 0) fm_give_up(FM_REFERENCE);
            r->length += size;
        } else if (fm_is(*p, FM_BLANK)) {
            p += p[0] == '\r' && p[1] == '\n' ? 2 : 1;
            r->text[r->length++] = ' ';
        } else {
            size = fm_wide((const uint8_t*)p);
            if (size == 0) fm_give_up(*p == '<' || p >= end ? FM_MARKUP : FM_CHARACTER);
            memcpy(r->text + r->length, p, (size_t)size);
            r->length += size;
            p += size;
        }
    }
    if (r->length - begin > r->attribute_bytes || r->length - begin > FM_VALUE_BYTES)
        fm_give_up(FM_SIZE);
    return p + 1;
}

/* A declaration of a namespace, whose value begins at `p`. */
static const char* FM_AS(fm_declare)(fm_reader* r, fm_name* name, const char* p, char quote,
                                     int* reason) {
    const char* begin = p;
    const fm_string* space = NULL;
    fm_declaration* own;
    while (fm_is(*p, FM_QUOTED)) p++;
    if (*p != quote || p - begin > FM_URI_BYTES) fm_give_up(FM_NAMESPACE);
    if (p > begin) {
        space = fm_intern(r, begin, (uint32_t)(p - begin));
        if (space == NULL || !space->usual) fm_give_up(FM_NAMESPACE);
    } else if (name->declares != r->empty) {
        fm_give_up(FM_NAMESPACE);
    }
    if (r->declared == FM_DECLARATIONS) fm_give_up(FM_NAMESPACE);
    own = &r->declarations[r->declared++];
    own->prefix = name->declares;
    own->before = name->declares->bound;
    name->declares->bound = space;
    return p + 1;
}

/* An element ends. */
static inline void FM_AS(fm_leave)(fm_reader* r) {
    fm_open* open = &r->open[--r->nesting];
    FM_AS(fm_end_text)(r);
    if (open->row >= 0) {
        r->ends[open->row] = r->tick++;
        r->parent = r->parents[open->row];
        r->level--;
    }
    if (r->declared != open->declared) fm_undeclare(r, open->declared);
}

/* A record begins, below the root around all of them. */
static int FM_AS(fm_begin_record)(fm_reader* r) {
    if (r->met == r->records) return 0;
    if (r->met > 0 && r->rows - r->firsts[r->met - 1] > r->record_nodes) return 0;
    r->firsts[r->met] = r->rows;
    r->tick = r->bases[r->met];
    r->level = r->record_levels[r->met];
    r->met++;
    return 1;
}

/* A start tag, from behind its '<' to behind its '>'; of an empty element, its end too. */
static inline const char* FM_AS(fm_start)(fm_reader* r, const char* p, const char* end,
                                          int* reason) {
    fm_name* name = FM_AS(fm_name_at)(r, &p, end);
    fm_open* open;
    int32_t row = -1, tag;
    int count = 0, prefixed = 0, is_empty, i;
    if (name == NULL || name->declares != NULL) fm_give_up(FM_NAME);
    FM_AS(fm_end_text)(r);
    if (r->nesting >= FM_DEPTH) fm_give_up(FM_SIZE);
    open = &r->open[r->nesting];
    open->name = name;
    open->declared = r->declared;
    if (r->firsts == NULL || r->nesting > 0) {
        if (r->firsts != NULL && r->nesting == 1 && !FM_AS(fm_begin_record)(r))
            fm_give_up(FM_SIZE);
        r->elements++;
        if (r->nesting - (r->firsts != NULL) >= r->depth) fm_give_up(FM_SIZE);
        row = FM_AS(fm_row)(r, FM_ELEMENT, 0);
        if (row < 0) fm_give_up(FM_SIZE);
        r->tick++;
        r->parent = row;
        r->level++;
    }
    open->row = row;
    r->nesting++;
    for (;;) {
        const char* before = p;
        fm_name* attribute;
        char quote;
        p = fm_blanks(p);
        is_empty = *p == '/';
        if (*p == '>' || is_empty) break;
        if (p == before) fm_give_up(FM_MARKUP);
        attribute = FM_AS(fm_name_at)(r, &p, end);
        if (attribute == NULL || attribute->is_odd) fm_give_up(FM_NAME);
        if (count == FM_MANY_ATTRIBUTES) fm_give_up(FM_ATTRIBUTES);
        r->attributes[count].name = attribute;
        r->attributes[count].row = -1;
        p = fm_blanks(p);
        if (*p != '=') fm_give_up(FM_MARKUP);
        p = fm_blanks(p + 1);
        quote = *p++;
        if (quote != '"' && quote != '\'') fm_give_up(FM_MARKUP);
        if (attribute->declares != NULL) {
            p = FM_AS(fm_declare)(r, attribute, p, quote, reason);
            if (p == NULL) return NULL;
        } else {
            int32_t at, value = r->length;
            if (row < 0) fm_give_up(FM_MARKUP);
            if (attribute->prefix == r->empty) {
                tag = fm_attribute_tag(r, attribute);
                if (tag == FM_NO_TAG) fm_give_up(FM_NAME);
            } else {
                tag = 0; /* its prefix may be declared further on */
                prefixed++;
            }
            at = FM_AS(fm_row)(r, FM_ATTRIBUTE, tag);
            if (at < 0) fm_give_up(FM_SIZE);
            r->attributes[count].row = at;
            r->tick += 2;
            p = FM_AS(fm_value)(r, p, end, quote, reason);
            if (p == NULL) return NULL;
            if (!r->values) r->length = value;
        }
        count++;
    }
    p += is_empty;
    if (*p++ != '>') fm_give_up(FM_MARKUP);
    if (count > 1 && fm_twice(r, count)) fm_give_up(FM_ATTRIBUTES);
    for (i = 0; prefixed > 0; i++) {
        fm_name* attribute = r->attributes[i].name;
        if (r->attributes[i].row < 0 || attribute->prefix == r->empty) continue;
        prefixed--;
        tag = fm_attribute_tag(r, attribute);
        if (tag == FM_NO_TAG) fm_give_up(FM_NAME);
        r->tags[r->attributes[i].row] = tag;
    }
    tag = row >= 0 ? fm_element_tag(r, name) : 0;
    if (tag == FM_NO_TAG) fm_give_up(FM_NAME);
    if (row < 0 && name->prefix != r->empty) fm_give_up(FM_NAME);
    if (row >= 0) r->tags[row] = tag;
    if (is_empty) FM_AS(fm_leave)(r);
    return p;
}

/* An end tag, from behind its "</" to behind its '>'. */
static inline const char* FM_AS(fm_finish)(fm_reader* r, const char* p, const char* end,
                                           int* reason) {
    const fm_name* name = r->open[r->nesting - 1].name;
    if (!FM_AS(fm_goes_on)(p, end, name)) fm_give_up(FM_MARKUP);
    p = fm_blanks(p + name->length);
    if (*p != '>') fm_give_up(FM_MARKUP);
    FM_AS(fm_leave)(r);
    return p + 1;
}

/* `name = "value"` in an XML declaration, after blanks; the value, or NULL if it is another. */
static const char* FM_AS(fm_assigned)(const char** at, const char* name, size_t* size) {
    const char* p = fm_blanks(*at);
    const char* value;
    size_t length = strlen(name);
    char quote;
    if (p == *at || strncmp(p, name, length)) return NULL;
    p = fm_blanks(p + length);
    if (*p != '=') return NULL;
    p = fm_blanks(p + 1);
    quote = *p++;
    if (quote != '"' && quote != '\'') return NULL;
    value = p;
    while (fm_is(*p, FM_IN_NAME)) p++;
    if (*p != quote) return NULL;
    *size = (size_t)(p - value);
    *at = p + 1;
    return value;
}

/* The XML declaration, if there is one. */
static const char* FM_AS(fm_declaration_of)(const char* p, int* reason) {
    const char* value;
    size_t size;
    if (strncmp(p, "<?xml", 5) || !fm_is(p[5], FM_BLANK)) return p;
    p += 5;
    value = FM_AS(fm_assigned)(&p, "version", &size);
    if (value == NULL || size != 3 || memcmp(value, "1.0", 3)) fm_give_up(FM_MARKUP);
    value = FM_AS(fm_assigned)(&p, "encoding", &size);
    if (value != NULL) {
        if (size != 5 || (value[0] | 32) != 'u' || (value[1] | 32) != 't' || (value[2] | 32) != 'f'
            || value[3] != '-' || value[4] != '8')
            fm_give_up(FM_ENCODING);
    }
    value = FM_AS(fm_assigned)(&p, "standalone", &size);
    if (value != NULL && !(size == 3 && !memcmp(value, "yes", 3))
        && !(size == 2 && !memcmp(value, "no", 2)))
        fm_give_up(FM_MARKUP);
    p = fm_blanks(p);
    if (p[0] != '?' || p[1] != '>') fm_give_up(FM_MARKUP);
    return p + 2;
}

/* Blanks, comments and instructions around the root; where something else begins. */
static const char* FM_AS(fm_around)(const char* p, const char* end, int* reason) {
    for (;;) {
        p = fm_blanks(p);
        if (p[0] != '<') return p;
        if (p[1] == '?') {
            p = FM_AS(fm_instruction)(p + 2, end, reason);
        } else if (p[1] == '!' && p[2] == '-' && p[3] == '-') {
            p = FM_AS(fm_comment)(p + 4, end, reason);
        } else {
            return p;
        }
        if (p == NULL) return NULL;
    }
}

/* A comment, an instruction or a CDATA section inside an element; `p` is at its '<'. */
static const char* FM_AS(fm_other)(fm_reader* r, const char* p, const char* end, int* reason) {
    if (p[1] == '!' && !strncmp(p + 2, "[CDATA[", 7))
        return FM_AS(fm_section)(r, p + 9, end, reason);
    FM_AS(fm_end_text)(r);
    /* Nothing may stand between records. */
    if (r->parent < 0) fm_give_up(FM_MARKUP);
    if (p[1] == '?') return FM_AS(fm_instruction)(p + 2, end, reason);
    if (p[2] == '-' && p[3] == '-') return FM_AS(fm_comment)(p + 4, end, reason);
    fm_give_up(FM_MARKUP);
}

static int FM_AS(fm_document)(fm_reader* r, const char* p, const char* end) {
    int why = FM_READ;
    int* reason = &why;
    r->document = p;
    r->parent = r->joined = -1;
    r->level = 0;
    r->nesting = 0;
    r->declared = 0;
    r->elements = 0;
    r->met = 0;
    if (end - p >= 3 && !memcmp(p, "\xef\xbb\xbf", 3)) p += 3;
    p = FM_AS(fm_declaration_of)(p, reason);
    if (p != NULL) p = FM_AS(fm_around)(p, end, reason);
    if (p == NULL) return why;
    if (p[0] != '<') return FM_MARKUP;
    if (p[1] == '!') return FM_DOCTYPE;
    p = FM_AS(fm_start)(r, p + 1, end, reason);
    while (p != NULL && r->nesting > 0) {
        if (*p != '<') p = FM_AS(fm_text)(r, p, end, reason);
        else if (p[1] == '/') p = FM_AS(fm_finish)(r, p + 2, end, reason);
        else if (p[1] == '!' || p[1] == '?') p = FM_AS(fm_other)(r, p, end, reason);
        else p = FM_AS(fm_start)(r, p + 1, end, reason);
    }
    if (p != NULL) p = FM_AS(fm_around)(p, end, reason);
    if (p == NULL) return why;
    if (p != end) return FM_MARKUP;
    if (r->firsts != NULL
        && (r->met != r->records
            || (r->met > 0 && r->rows - r->firsts[r->met - 1] > r->record_nodes)))
        return FM_SIZE;
    r->offsets[r->rows] = r->length;
    return FM_READ;
}

#undef fm_give_up
