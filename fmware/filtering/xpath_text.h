/* Memory, strings and numbers of xpath_eval.h. */

#ifndef FMWARE_XPATH_TEXT_H
#define FMWARE_XPATH_TEXT_H

typedef struct { const char* data; int64_t size; } XText;

/* -- memory: blocks that are kept from evaluation to evaluation -- */

#define X_BLOCK (64 << 10)
#define X_UNSPELLED 2    /* as `stop`: a name is needed that the view does not have */

typedef struct XBlock { struct XBlock* before; int64_t size; char bytes[]; } XBlock;

typedef struct {
    XBlock* block;       /* the one in use; those before it are full */
    int64_t used;        /* bytes of it */
    int64_t held;        /* bytes of all blocks */
    int64_t most;        /* bytes that all blocks may have */
    int64_t budget;      /* units of work left */
    int stop;            /* the budget or the memory is used up */
} XArena;

typedef struct { XBlock* block; int64_t used; } XMark;

static inline void x_charge(XArena* arena, int64_t units) {
    arena->budget -= units;
    if (arena->budget < 0)
        arena->stop = 1;
}

static inline XMark x_mark(XArena* arena) { return (XMark){arena->block, arena->used}; }

/* Give back all that was taken since the mark. */
static void x_release(XArena* arena, XMark mark) {
    while (arena->block != mark.block) {
        XBlock* block = arena->block;
        arena->block = block->before;
        arena->held -= block->size;
        free(block);
    }
    arena->used = mark.used;
}

/* Memory until the next release; NULL, and `stop`, if there is none left. */
static void* x_room(XArena* arena, int64_t size) {
    char* room;
    size = (size + 7) & ~(int64_t)7;
    x_charge(arena, size >> 4);
    if (arena->stop)
        return NULL;
    if (arena->block == NULL || arena->used + size > arena->block->size) {
        int64_t wanted = size > X_BLOCK ? size : X_BLOCK;
        XBlock* block = arena->held + wanted > arena->most ? NULL : malloc(sizeof(XBlock) + wanted);
        if (block == NULL) {
            arena->stop = 1;
            return NULL;
        }
        block->before = arena->block;
        block->size = wanted;
        arena->held += wanted;
        arena->block = block;
        arena->used = 0;
    }
    room = arena->block->bytes + arena->used;
    arena->used += size;
    return room;
}

/* -- growing arrays of rows -- */

typedef struct { int32_t* items; int32_t count; int32_t room; } XRows;

static int x_push(XArena* arena, XRows* rows, int32_t row) {
    if (rows->count == rows->room) {
        int32_t room = rows->room ? rows->room * 2 : 16;
        int32_t* items = x_room(arena, (int64_t)room * sizeof(int32_t));
        if (items == NULL)
            return 0;
        if (rows->count)
            memcpy(items, rows->items, rows->count * sizeof(int32_t));
        rows->items = items;
        rows->room = room;
    }
    rows->items[rows->count++] = row;
    return 1;
}

static XRows* x_rows(XArena* arena) {
    XRows* rows = x_room(arena, sizeof(XRows));
    if (rows != NULL)
        memset(rows, 0, sizeof(XRows));
    return rows;
}

static inline int32_t* x_take(XArena* arena, XRows* rows, int32_t* count) {
    *count = arena->stop ? 0 : rows->count;
    return rows->items;
}

static void x_reverse(XRows* rows, int32_t begin) {
    for (int32_t i = begin, j = rows->count - 1; i < j; i++, j--) {
        int32_t held = rows->items[i];
        rows->items[i] = rows->items[j];
        rows->items[j] = held;
    }
}

/* -- strings -- */

static inline XText x_literal(const char* text) {
    return (XText){text ? text : "", text ? (int64_t)strlen(text) : 0};
}

static inline XText x_string(const int32_t* ends, const char* bytes, int32_t index) {
    int32_t begin = index ? ends[index - 1] : 0;
    return (XText){bytes + begin, ends[index] - begin};
}

static uint64_t x_hash(XArena* arena, XText text) {
    uint64_t hash = 1469598103934665603ull;
    x_charge(arena, text.size >> 3);
    for (int64_t i = 0; i < text.size; i++)
        hash = (hash ^ (uint8_t)text.data[i]) * 1099511628211ull;
    return hash ^ (hash >> 29);
}

static inline int x_is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Bytes of the character that begins here; the text is well-formed UTF-8. */
static inline int x_width(const char* at) {
    uint8_t c = (uint8_t)*at;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

static int64_t x_length(XArena* arena, XText text) {
    int64_t count = 0;
    x_charge(arena, text.size >> 4);
    for (int64_t i = 0; i < text.size; i++)
        count += ((uint8_t)text.data[i] & 0xc0) != 0x80;
    return count;
}

/* Where a string first stands in another; -1 if nowhere. */
static int64_t x_find(XArena* arena, XText text, XText part) {
    const char* found;
    x_charge(arena, (text.size + part.size) >> 3);
    if (part.size == 0)
        return 0;
    found = text.size < part.size ? NULL : memmem(text.data, text.size, part.data, part.size);
    return found == NULL ? -1 : found - text.data;
}

/* -- letters -- */

/* Letters and what they become in the other case: four numbers each, the letter and one to three
   characters, in order. Set once, before any program that needs them. */
typedef struct { const int32_t* letters; int32_t count; } XCases;
static XCases x_lower_cases, x_upper_cases;

static int x_encode(char* to, int32_t c) {
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 0x3f));
        to[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | c >> 18);
    to[1] = (char)(0x80 | (c >> 12 & 0x3f));
    to[2] = (char)(0x80 | (c >> 6 & 0x3f));
    to[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* The character that begins here; the text is well-formed UTF-8. */
static int32_t x_character(const char* at, int width) {
    const uint8_t* b = (const uint8_t*)at;
    switch (width) {
    case 1: return b[0];
    case 2: return (b[0] & 0x1f) << 6 | (b[1] & 0x3f);
    case 3: return (b[0] & 0x0f) << 12 | (b[1] & 0x3f) << 6 | (b[2] & 0x3f);
    default: return (b[0] & 0x07) << 18 | (b[1] & 0x3f) << 12 | (b[2] & 0x3f) << 6 | (b[3] & 0x3f);
    }
}

/* All letters in another case. */
static XText x_recase(XArena* arena, XText text, const XCases* cases) {
    /* A letter of two bytes becomes at most three characters of three. */
    char* to = x_room(arena, text.size * 6 + 1);
    int64_t size = 0;
    if (to == NULL)
        return (XText){"", 0};
    for (int64_t i = 0; i < text.size;) {
        int width = x_width(text.data + i);
        int32_t c = x_character(text.data + i, width), low = 0, high = cases->count;
        while (low < high) {
            int32_t middle = (low + high) / 2;
            if (cases->letters[4 * middle] < c)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < cases->count && cases->letters[4 * low] == c) {
            for (int32_t j = 1; j < 4 && cases->letters[4 * low + j] >= 0; j++)
                size += x_encode(to + size, cases->letters[4 * low + j]);
        } else {
            memcpy(to + size, text.data + i, width);
            size += width;
        }
        x_charge(arena, 2);
        i += width;
    }
    return (XText){to, size};
}

/* -- dates -- */

static int x_digits(const char** at, const char* end, int count, int* value) {
    *value = 0;
    for (int i = 0; i < count; i++, (*at)++) {
        if (*at >= end || **at < '0' || **at > '9')
            return 0;
        *value = *value * 10 + (**at - '0');
    }
    return 1;
}

static int x_sign(const char** at, const char* end, char sign) {
    if (*at >= end || **at != sign)
        return 0;
    (*at)++;
    return 1;
}

/* Seconds of xs:date or xs:dateTime; NaN if a text is none. Without a time zone it is taken for UTC. */
static double x_moment(XArena* arena, XText text, int with_time) {
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const char* at = text.data;
    const char* end = at + text.size;
    int year, month, day, hour = 0, minute = 0, second = 0, leap, negative, zone = 0, h, m;
    int64_t days, y;
    double part = 0, scale = 0.1;
    x_charge(arena, 8 + (text.size >> 3));
    while (at < end && x_is_blank(*at))
        at++;
    while (end > at && x_is_blank(end[-1]))
        end--;
    negative = x_sign(&at, end, '-');
    if (!x_digits(&at, end, 4, &year))
        return NAN;
    for (int more = 0; at < end && *at >= '0' && *at <= '9'; at++)
        if (++more > 4 || (year = year * 10 + (*at - '0')) < 10000)
            return NAN;
    if (!x_sign(&at, end, '-') || !x_digits(&at, end, 2, &month) || !x_sign(&at, end, '-')
        || !x_digits(&at, end, 2, &day))
        return NAN;
    year = negative ? -year : year;
    leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (month < 1 || month > 12 || day < 1 || day > lengths[month - 1] + (month == 2 && leap))
        return NAN;
    if (with_time) {
        if (!x_sign(&at, end, 'T') || !x_digits(&at, end, 2, &hour) || !x_sign(&at, end, ':')
            || !x_digits(&at, end, 2, &minute) || !x_sign(&at, end, ':') || !x_digits(&at, end, 2, &second))
            return NAN;
        if (x_sign(&at, end, '.')) {
            if (at >= end || *at < '0' || *at > '9')
                return NAN;
            for (; at < end && *at >= '0' && *at <= '9'; at++, scale /= 10)
                part += (*at - '0') * scale;
        }
        if (minute > 59 || second > 59 || hour > 24 || (hour == 24 && (minute || second || part > 0)))
            return NAN;
    }
    if (at < end && *at == 'Z') {
        at++;
    } else if (at < end && (*at == '+' || *at == '-')) {
        int west = *at++ == '-';
        if (!x_digits(&at, end, 2, &h) || !x_sign(&at, end, ':') || !x_digits(&at, end, 2, &m) || m > 59
            || h * 60 + m > 14 * 60)
            return NAN;
        zone = (west ? -1 : 1) * (h * 60 + m);
    }
    if (at != end)
        return NAN;
    /* Days since March of the year 0, so that a leap day is the last of its year. */
    y = (int64_t)year - (month <= 2);
    days = y * 365 + (y >= 0 ? y / 4 - y / 100 + y / 400 : (y - 3) / 4 - (y - 99) / 100 + (y - 399) / 400)
        + (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day;
    return ((double)days * 24 + hour) * 3600 + (minute - zone) * 60.0 + second + part;
}

/* -- numbers -- */

/* XPath's number(): blanks, an optional minus, digits with at most one point, blanks. */
static double x_parse(XArena* arena, XText text) {
    const char* at = text.data;
    const char* end = at + text.size;
    const char *digits, *p;
    char buffer[64];
    char* large;
    double value;
    int any = 0;
    x_charge(arena, text.size >> 3);
    while (at < end && x_is_blank(*at))
        at++;
    while (end > at && x_is_blank(end[-1]))
        end--;
    digits = at;
    p = at + (at < end && *at == '-');
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        any = 1;
    if (p < end && *p == '.')
        for (p++; p < end && *p >= '0' && *p <= '9'; p++)
            any = 1;
    if (p != end || !any)
        return NAN;
    large = end - digits < (int64_t)sizeof(buffer) ? buffer : x_room(arena, end - digits + 1);
    if (large == NULL)
        return NAN;
    memcpy(large, digits, end - digits);
    large[end - digits] = 0;
    value = strtod(large, NULL);
    return value;
}

/* XPath's string() of a number: all digits, no exponent, as few as tell it from all others. */
static XText x_spell(XArena* arena, double value) {
    char shortest[32], digits[32];
    char *to, *at;
    int count = 0, exponent = 0, precision = 0, negative = value < 0;
    if (isnan(value))
        return (XText){"NaN", 3};
    if (isinf(value))
        return value > 0 ? (XText){"Infinity", 8} : (XText){"-Infinity", 9};
    if (value == 0)
        return (XText){"0", 1};
    do {
        snprintf(shortest, sizeof(shortest), "%.*e", precision, value);
    } while (strtod(shortest, NULL) != value && ++precision < 17);
    for (at = shortest + negative; *at != 'e'; at++)
        if (*at != '.')
            digits[count++] = *at;
    exponent = atoi(at + 1) + 1;   /* digits before the point */
    to = x_room(arena, 8 + count + (exponent < 0 ? -exponent : exponent));
    if (to == NULL)
        return (XText){"", 0};
    at = to;
    if (negative)
        *at++ = '-';
    if (exponent <= 0) {
        *at++ = '0';
        *at++ = '.';
        for (; exponent < 0; exponent++)
            *at++ = '0';
        exponent = -1;   /* the point is written */
    }
    for (int i = 0; i < count; i++) {
        if (i == exponent)
            *at++ = '.';
        *at++ = digits[i];
    }
    for (int i = count; i < exponent; i++)
        *at++ = '0';
    return (XText){to, at - to};
}

#endif
