/* The reading itself, included by fast_reader.h once for each instruction set, under the names
   that FM_AS makes. A function returns where reading goes on, or NULL with the reason set. */

#define fm_give_up(why) do { *reason = (why); return NULL; } while (0)

/* --- the first stage: characters ------------------------------------------------------------- */

#if defined(FM_AVX2)

/* What can be wrong about two bytes that follow each other. Three tables, by the halves of the
   first byte and by the upper half of the second, have a bit for each; it is wrong if all three
   have it. After J. Keiser and D. Lemire, "Validating UTF-8 in less than one instruction per byte". */
enum {
    FM_SHORT = 1,             /* a leading byte, and no byte that continues it */
    FM_LONG = 2,              /* ASCII, and a byte that continues something */
    FM_OVER_3 = 4,            /* three bytes where two would do */
    FM_LARGE = 8,             /* above U+10FFFF: f4 90 to f4 bf, f5 and more */
    FM_SURROGATE = 16,
    FM_OVER_2 = 32,           /* two bytes where one would do */
    FM_LARGE_OR_OVER_4 = 64,  /* f0 80 to f0 8f, and f5 80 to ff 8f */
    FM_BOTH = 128,            /* two that continue: right only in characters of three or four */
    FM_ANY = FM_SHORT | FM_LONG | FM_BOTH,
};

#define FM_TWICE(...) _mm256_setr_epi8(__VA_ARGS__, __VA_ARGS__)

/* The bytes `n` places before those of a block. */
#define FM_EARLIER(block, before, n) \
    _mm256_alignr_epi8(block, _mm256_permute2x128_si256(before, block, 0x21), 16 - (n))

/* What is wrong in a block, given the one before it: not zero where something is. */
static inline __m256i fm_wrong_wide(__m256i block, __m256i before) {
    const __m256i first_high = FM_TWICE(
        FM_LONG, FM_LONG, FM_LONG, FM_LONG, FM_LONG, FM_LONG, FM_LONG, FM_LONG,
        (char)FM_BOTH, (char)FM_BOTH, (char)FM_BOTH, (char)FM_BOTH, FM_SHORT | FM_OVER_2, FM_SHORT,
        FM_SHORT | FM_OVER_3 | FM_SURROGATE, FM_SHORT | FM_LARGE | FM_LARGE_OR_OVER_4);
    const __m256i first_low = FM_TWICE(
        (char)(FM_ANY | FM_OVER_2 | FM_OVER_3 | FM_LARGE_OR_OVER_4), (char)(FM_ANY | FM_OVER_2),
        (char)FM_ANY, (char)FM_ANY, (char)(FM_ANY | FM_LARGE),
        (char)(FM_ANY | FM_LARGE | FM_LARGE_OR_OVER_4), (char)(FM_ANY | FM_LARGE | FM_LARGE_OR_OVER_4),
        (char)(FM_ANY | FM_LARGE | FM_LARGE_OR_OVER_4), (char)(FM_ANY | FM_LARGE | FM_LARGE_OR_OVER_4),
        (char)(FM_ANY | FM_LARGE | FM_LARGE_OR_OVER_4), (char)(FM_ANY | FM_LARGE | FM_LARGE_OR_OVER_4),
        (char)(FM_ANY | FM_LARGE | FM_LARGE_OR_OVER_4), (char)(FM_ANY | FM_LARGE | FM_LARGE_OR_OVER_4),
        (char)(FM_ANY | FM_LARGE | FM_LARGE_OR_OVER_4 | FM_SURROGATE),
        (char)(FM_ANY | FM_LARGE | FM_LARGE_OR_OVER_4), (char)(FM_ANY | FM_LARGE | FM_LARGE_OR_OVER_4));
    const __m256i second_high = FM_TWICE(
        FM_SHORT, FM_SHORT, FM_SHORT, FM_SHORT, FM_SHORT, FM_SHORT, FM_SHORT, FM_SHORT,
        (char)(FM_LONG | FM_BOTH | FM_OVER_2 | FM_OVER_3 | FM_LARGE_OR_OVER_4),
        (char)(FM_LONG | FM_BOTH | FM_OVER_2 | FM_OVER_3 | FM_LARGE),
        (char)(FM_LONG | FM_BOTH | FM_OVER_2 | FM_SURROGATE | FM_LARGE),
        (char)(FM_LONG | FM_BOTH | FM_OVER_2 | FM_SURROGATE | FM_LARGE),
        FM_SHORT, FM_SHORT, FM_SHORT, FM_SHORT);
    const __m256i half = _mm256_set1_epi8(15);
    __m256i one = FM_EARLIER(block, before, 1);
    __m256i two = FM_EARLIER(block, before, 2);
    __m256i three = FM_EARLIER(block, before, 3);
    __m256i pairs = _mm256_and_si256(
        _mm256_and_si256(
            _mm256_shuffle_epi8(first_high, _mm256_and_si256(_mm256_srli_epi16(one, 4), half)),
            _mm256_shuffle_epi8(first_low, _mm256_and_si256(one, half))),
        _mm256_shuffle_epi8(second_high, _mm256_and_si256(_mm256_srli_epi16(block, 4), half)));
    /* Third and fourth bytes must continue one that does: FM_BOTH is due there, and only there. */
    __m256i due = _mm256_and_si256(
        _mm256_or_si256(_mm256_subs_epu8(two, _mm256_set1_epi8(0xe0 - 0x80)),
                        _mm256_subs_epu8(three, _mm256_set1_epi8(0xf0 - 0x80))),
        _mm256_set1_epi8((char)0x80));
    /* U+FFFE and U+FFFF, ef bf be and ef bf bf, are no characters of XML. */
    __m256i last = _mm256_and_si256(
        _mm256_and_si256(_mm256_cmpeq_epi8(two, _mm256_set1_epi8((char)0xef)),
                         _mm256_cmpeq_epi8(one, _mm256_set1_epi8((char)0xbf))),
        _mm256_cmpeq_epi8(_mm256_max_epu8(block, _mm256_set1_epi8((char)0xbe)), block));
    return _mm256_or_si256(_mm256_xor_si256(pairs, due), last);
}

/* Whether all bytes are UTF-8 and make up characters that XML has. */
static int FM_AS(fm_valid)(const char* p, const char* end) {
    /* A block that ends with one of these bytes, or a larger one, needs more of its last character. */
    const __m256i whole = _mm256_setr_epi8(
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
        -1, -1, -1, -1, -1, (char)(0xf0 - 1), (char)(0xe0 - 1), (char)(0xc0 - 1));
    /* Of the bytes below 32, those that may be: each at the place of its lower half. */
    const __m256i allowed = FM_TWICE(-1, -1, -1, -1, -1, -1, -1, -1, -1, 9, 10, -1, -1, 13, -1, -1);
    const __m256i low = _mm256_set1_epi8(31);
    __m256i wrong = _mm256_setzero_si256(), before = wrong, block;
    int more = 1;
    while (more) {
        more = end - p >= 32;
        if (more) {
            block = _mm256_loadu_si256((const __m256i*)p);
            p += 32;
        } else {
            char rest[32];
            memset(rest, ' ', 32);
            memcpy(rest, p, (size_t)(end - p));
            block = _mm256_loadu_si256((const __m256i*)rest);
        }
        wrong = _mm256_or_si256(wrong, _mm256_andnot_si256(
            _mm256_cmpeq_epi8(_mm256_shuffle_epi8(allowed, block), block),
            _mm256_cmpeq_epi8(_mm256_min_epu8(block, low), block)));
        if (_mm256_movemask_epi8(block))
            wrong = _mm256_or_si256(wrong, fm_wrong_wide(block, before));
        else
            wrong = _mm256_or_si256(wrong, _mm256_subs_epu8(before, whole));
        before = block;
    }
    return _mm256_testz_si256(wrong, wrong);
}

#else

/* Whether all bytes are UTF-8 and make up characters that XML has. */
static int FM_AS(fm_valid)(const char* p, const char* end) {
    while (p < end) {
        int size = 1;
#if defined(FM_X86)
        if (end - p >= 16) {
            __m128i block = _mm_loadu_si128((const __m128i*)p);
            /* Bytes below 32 that are no blanks, and bytes of characters that are not ASCII. */
            __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(block, _mm_set1_epi8(31)), block);
            __m128i blank = _mm_or_si128(
                _mm_or_si128(_mm_cmpeq_epi8(block, _mm_set1_epi8('\t')),
                             _mm_cmpeq_epi8(block, _mm_set1_epi8('\n'))),
                _mm_cmpeq_epi8(block, _mm_set1_epi8('\r')));
            unsigned wide = (unsigned)_mm_movemask_epi8(block);
            const char* next = p + 16;
            if (_mm_movemask_epi8(_mm_andnot_si128(blank, low))) return 0;
            while (wide) {
                int at = __builtin_ctz(wide);
                size = fm_wide((const uint8_t*)p + at);
                if (size == 0) return 0;
                if (p + at + size > next) next = p + at + size;
                wide &= ~(((1u << size) - 1) << at);
            }
            p = next;
            continue;
        }
#endif
        if ((uint8_t)*p >= 0x80) size = fm_wide((const uint8_t*)p);
        if (size == 0 || fm_is(*p, FM_CONTROL)) return 0;
        p += size;
    }
    return 1;
}

#endif

/* About how many rows a document has: its start tags, the texts before a '<', and its equal signs.
   Reads no byte behind the input but the zero. */
static size_t FM_AS(fm_rows_of)(const char* text, size_t size) {
    size_t at = 0, rows = 0;
    while (at < size) {
        /* Each byte counts up to two: a sum of a hundred of them fits into a byte, and the inner
           loop is one that compilers turn into vector instructions. */
        size_t stop = size - at < 96 ? size : at + 96;
        uint8_t sum = 0;
        for (; at < stop; at++) {
            uint8_t one = (uint8_t)text[at], two = (uint8_t)text[at + 1];
            sum = (uint8_t)(sum + ((one == '<') & (two != '/')) + ((one != '>') & (two == '<'))
                            + (one == '='));
        }
        rows += sum;
    }
    return rows;
}

/* --- the second stage: marks ----------------------------------------------------------------- */

/* Copy text up to the next '<', '&', '>' or '\r' to `out`; where that is. Bytes behind those that
   count may be written. */
FM_INLINE const char* FM_AS(fm_plain)(const char* p, const char* end, char* out) {
    const char* begin = p;
#if defined(FM_AVX2)
    /* The lower half of each mark is another one: a byte is a mark if it is what stands there. */
    const __m256i marks = FM_TWICE(-1, 0, 0, 0, 0, 0, '&', 0, 0, 0, 0, 0, '<', '\r', '>', 0);
    while (end - p >= 32) {
        __m256i block = _mm256_loadu_si256((const __m256i*)p);
        uint32_t hits = (uint32_t)_mm256_movemask_epi8(
            _mm256_cmpeq_epi8(_mm256_shuffle_epi8(marks, block), block));
        _mm256_storeu_si256((__m256i*)(out + (p - begin)), block);
        if (hits) return p + __builtin_ctz(hits);
        p += 32;
    }
#elif defined(FM_X86)
    const __m128i less = _mm_set1_epi8('<'), more = _mm_set1_epi8('>');
    const __m128i and = _mm_set1_epi8('&'), line = _mm_set1_epi8('\r');
    while (end - p >= 16) {
        __m128i block = _mm_loadu_si128((const __m128i*)p);
        int hits = _mm_movemask_epi8(_mm_or_si128(
            _mm_or_si128(_mm_cmpeq_epi8(block, less), _mm_cmpeq_epi8(block, and)),
            _mm_or_si128(_mm_cmpeq_epi8(block, more), _mm_cmpeq_epi8(block, line))));
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

/* The same for the value of an attribute, up to a quotation mark of either sort, '<', '&' or a blank
   that is no space. */
FM_INLINE const char* FM_AS(fm_quoted)(const char* p, const char* end, char* out) {
    const char* begin = p;
#if defined(FM_AVX2)
    const __m256i marks = FM_TWICE(-1, 0, '"', 0, 0, 0, '&', '\'', 0, '\t', '\n', 0, '<', '\r', 0, 0);
    while (end - p >= 32) {
        __m256i block = _mm256_loadu_si256((const __m256i*)p);
        uint32_t hits = (uint32_t)_mm256_movemask_epi8(
            _mm256_cmpeq_epi8(_mm256_shuffle_epi8(marks, block), block));
        _mm256_storeu_si256((__m256i*)(out + (p - begin)), block);
        if (hits) return p + __builtin_ctz(hits);
        p += 32;
    }
#elif defined(FM_X86)
    const __m128i less = _mm_set1_epi8('<'), and = _mm_set1_epi8('&');
    const __m128i quote = _mm_set1_epi8('"'), apostrophe = _mm_set1_epi8('\'');
    const __m128i low = _mm_set1_epi8(31);
    while (end - p >= 16) {
        __m128i block = _mm_loadu_si128((const __m128i*)p);
        __m128i marks = _mm_or_si128(
            _mm_or_si128(_mm_cmpeq_epi8(block, less), _mm_cmpeq_epi8(block, and)),
            _mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, apostrophe)));
        int hits = _mm_movemask_epi8(
            _mm_or_si128(_mm_cmpeq_epi8(_mm_min_epu8(block, low), block), marks));
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
        if (others) {
            uint32_t length = (uint32_t)__builtin_ctz(others);
            int crowded = 0;
            uint64_t words[2];
            fm_name* found;
            block = _mm_and_si128(block, _mm_loadu_si128((const __m128i*)fm_name_masks[length]));
            words[0] = (uint64_t)_mm_cvtsi128_si64(block);
            words[1] = (uint64_t)_mm_extract_epi64(block, 1);
            found = fm_met_name(r, p, length, words, 0, &crowded);
            /* A name that was met before is one; if not, or if the character that ends it is not
               ASCII, it is looked at byte by byte. */
            if (found != NULL && (uint8_t)p[length] < 0x80) {
                *at = p + length;
                return found;
            }
        }
    }
#endif
    return fm_scan_name(r, at, end);
}

/* Whether the document goes on with a name. */
static inline int FM_AS(fm_goes_on)(const char* p, const char* end, const fm_name* name) {
    uint32_t length = name->length;
    uint64_t words[2];
    if (end - p <= (ptrdiff_t)length) return 0;
    fm_words(p, length, end, words);
    return words[0] == name->first && words[1] == name->second
        && (length <= 16 || !memcmp(p + 16, name->text + 16, length - 16));
}

/* Where the next '-' or '?', the byte `stop`, of a comment or an instruction is. */
static inline const char* FM_AS(fm_pass)(const char* p, const char* end, char stop, int* reason) {
    p = p < end ? memchr(p, stop, (size_t)(end - p)) : NULL;
    if (p == NULL) fm_give_up(FM_MARKUP);
    return p;
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
FM_INLINE int32_t FM_AS(fm_row)(fm_reader* r, fm_place* s, uint8_t kind, int32_t tag) {
    int32_t row = s->rows;
    if (row == r->capacity) {
        r->rows = row;
        if (!r->grow(r->owner, r)) return -1;
    }
    s->rows = row + 1;
    r->kinds[row] = kind;
    r->tags[row] = tag;
    r->parents[row] = s->parent;
    r->levels[row] = (int16_t)s->level;
    r->starts[row] = s->tick;
    r->ends[row] = s->tick + 1;
    r->offsets[row] = s->length;
    return row;
}

/* Text is over. If blank text does not count and it is blank, it never was. */
FM_INLINE void FM_AS(fm_end_text)(fm_reader* r, fm_place* s) {
    if (!r->as_is && s->joined >= 0) {
        int32_t begin = r->offsets[s->joined];
        if (!r->blanks) {
            int32_t i = begin;
            while (i < s->length && fm_is(r->text[i], FM_BLANK)) i++;
            if (i == s->length) {
                s->rows--;
                s->tick -= 2;
                s->length = begin;
            }
        }
        if (!r->values) s->length = begin;
    }
    s->joined = -1;
}

/* Text is about to be written: it has its row. */
FM_INLINE int FM_AS(fm_begin_text)(fm_reader* r, fm_place* s) {
    if (s->joined >= 0) return 1;
    /* Between records there must be nothing. */
    if (s->parent < 0) return 0;
    s->joined = FM_AS(fm_row)(r, s, FM_TEXT, 0);
    s->tick += 2;
    return s->joined >= 0;
}

FM_INLINE int FM_AS(fm_text_fits)(const fm_reader* r, const fm_place* s) {
    return s->length - r->offsets[s->joined] <= r->longest_text;
}

/* Text up to the next '<'. */
FM_INLINE const char* FM_AS(fm_text)(fm_reader* r, fm_place* s, const char* p, const char* end,
                                     int* reason) {
    if (!FM_AS(fm_begin_text)(r, s)) fm_give_up(FM_SIZE);
    for (;;) {
        const char* next = FM_AS(fm_plain)(p, end, r->text + s->length);
        int size;
        s->length += (int32_t)(next - p);
        p = next;
        if (*p == '<') break;
        if (*p == '&') {
            size = fm_reference(&p, r->text + s->length);
            if (size == 0) fm_give_up(FM_REFERENCE);
            s->length += size;
        } else if (*p == '>') {
            /* No markup ends with ']', so these are of the text. */
            if (p[-1] == ']' && p[-2] == ']') fm_give_up(FM_MARKUP);
            r->text[s->length++] = *p++;
        } else if (*p == '\r') {
            p += p[1] == '\n' ? 2 : 1;
            r->text[s->length++] = '\n';
        } else {
            fm_give_up(FM_MARKUP); /* the end of the document */
        }
    }
    if (!FM_AS(fm_text_fits)(r, s)) fm_give_up(FM_SIZE);
    return p;
}

/* A CDATA section, from behind its "<![CDATA[" to behind its end. */
FM_INLINE const char* FM_AS(fm_section)(fm_reader* r, fm_place* s, const char* p, const char* end,
                                        int* reason) {
    if (p[0] == ']' && p[1] == ']' && p[2] == '>') return p + 3;
    if (!FM_AS(fm_begin_text)(r, s)) fm_give_up(FM_SIZE);
    for (;;) {
        const char* next = FM_AS(fm_plain)(p, end, r->text + s->length);
        s->length += (int32_t)(next - p);
        p = next;
        if (*p == '>' && p[-1] == ']' && p[-2] == ']') break;
        if (*p == '<' || *p == '&' || *p == '>') {
            r->text[s->length++] = *p++;
        } else if (*p == '\r') {
            p += p[1] == '\n' ? 2 : 1;
            r->text[s->length++] = '\n';
        } else {
            fm_give_up(FM_MARKUP); /* the end of the document */
        }
    }
    s->length -= 2;
    if (!FM_AS(fm_text_fits)(r, s)) fm_give_up(FM_SIZE);
    return p + 1;
}

/* The value of an attribute, from behind its quotation mark to behind the other one. */
FM_INLINE const char* FM_AS(fm_value)(fm_reader* r, fm_place* s, const char* p, const char* end,
                                      char quote, int* reason) {
    int32_t begin = s->length;
    for (;;) {
        const char* next = FM_AS(fm_quoted)(p, end, r->text + s->length);
        int size;
        s->length += (int32_t)(next - p);
        p = next;
        if (*p == quote) break;
        if (*p == '"' || *p == '\'') {
            r->text[s->length++] = *p++;
        } else if (*p == '&') {
            size = fm_reference(&p, r->text + s->length);
            if (size == 0) fm_give_up(FM_REFERENCE);
            s->length += size;
        } else if (fm_is(*p, FM_BLANK)) {
            p += p[0] == '\r' && p[1] == '\n' ? 2 : 1;
            r->text[s->length++] = ' ';
        } else {
            fm_give_up(FM_MARKUP); /* a '<', or the end of the document */
        }
    }
    if (s->length - begin > r->longest_attribute) fm_give_up(FM_SIZE);
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
FM_INLINE void FM_AS(fm_leave)(fm_reader* r, fm_place* s) {
    fm_open* open = &r->open[--s->nesting];
    FM_AS(fm_end_text)(r, s);
    if (open->row >= 0) {
        r->ends[open->row] = s->tick++;
        s->parent = r->parents[open->row];
        s->level--;
    }
    if (r->declared != open->declared) fm_undeclare(r, open->declared);
}

/* A record begins, below the root around all of them. */
FM_INLINE int FM_AS(fm_begin_record)(fm_reader* r, fm_place* s) {
    if (r->met == r->records) return 0;
    if (r->met > 0 && s->rows - r->firsts[r->met - 1] > r->record_nodes) return 0;
    r->firsts[r->met] = s->rows;
    s->tick = r->bases[r->met];
    s->level = r->record_levels[r->met];
    r->met++;
    return 1;
}

/* The ids of attributes with a prefix, all of which are declared by now. */
static int FM_AS(fm_name_prefixed)(fm_reader* r, int count) {
    int i;
    if (fm_twice(r, count)) return FM_ATTRIBUTES;
    for (i = 0; i < count; i++) {
        int32_t tag = fm_attribute_tag(r, r->attributes[i].name);
        if (tag == FM_NO_TAG) return FM_NAME;
        r->tags[r->attributes[i].row] = tag;
    }
    return FM_READ;
}

/* A start tag, from behind its '<' to behind its '>'; of an empty element, its end too. */
FM_INLINE const char* FM_AS(fm_start)(fm_reader* r, fm_place* s, const char* p, const char* end,
                                      int* reason) {
    fm_name* name = FM_AS(fm_name_at)(r, &p, end);
    fm_open* open;
    int32_t row = -1, tag;
    int count = 0, prefixed = 0, is_empty = 0;
    if (name == NULL || name->declares != NULL) fm_give_up(FM_NAME);
    FM_AS(fm_end_text)(r, s);
    if (s->nesting >= FM_DEPTH) fm_give_up(FM_SIZE);
    open = &r->open[s->nesting];
    open->name = name;
    open->declared = r->declared;
    if (r->firsts == NULL || s->nesting > 0) {
        if (r->firsts != NULL && s->nesting == 1 && !FM_AS(fm_begin_record)(r, s))
            fm_give_up(FM_SIZE);
        r->elements++;
        if (s->nesting - (r->firsts != NULL) >= r->depth) fm_give_up(FM_SIZE);
        row = FM_AS(fm_row)(r, s, FM_ELEMENT, 0);
        if (row < 0) fm_give_up(FM_SIZE);
        s->tick++;
        s->parent = row;
        s->level++;
    }
    open->row = row;
    s->nesting++;
    r->start_tags++;
    while (*p != '>') {
        const char* before = p;
        fm_name* attribute;
        char quote;
        p = fm_blanks(p);
        is_empty = *p == '/';
        if (*p == '>' || is_empty) break;
        if (p == before) fm_give_up(FM_MARKUP);
        attribute = FM_AS(fm_name_at)(r, &p, end);
        if (attribute == NULL || attribute->is_odd) fm_give_up(FM_NAME);
        if (count++ == FM_MANY_ATTRIBUTES || attribute->seen == r->start_tags)
            fm_give_up(FM_ATTRIBUTES);
        attribute->seen = r->start_tags;
        if (*p != '=') {
            p = fm_blanks(p);
            if (*p != '=') fm_give_up(FM_MARKUP);
        }
        quote = *++p;
        if (quote != '"' && quote != '\'') {
            p = fm_blanks(p);
            quote = *p;
            if (quote != '"' && quote != '\'') fm_give_up(FM_MARKUP);
        }
        p++;
        if (attribute->declares != NULL) {
            p = FM_AS(fm_declare)(r, attribute, p, quote, reason);
            if (p == NULL) return NULL;
        } else {
            int32_t at, value = s->length;
            if (row < 0) fm_give_up(FM_MARKUP);
            tag = 0;
            if (attribute->prefix == r->empty) {
                tag = fm_attribute_tag(r, attribute);
                if (tag == FM_NO_TAG) fm_give_up(FM_NAME);
            }
            at = FM_AS(fm_row)(r, s, FM_ATTRIBUTE, tag);
            if (at < 0) fm_give_up(FM_SIZE);
            if (attribute->prefix != r->empty) {
                /* Its prefix may be declared further on. */
                r->attributes[prefixed].name = attribute;
                r->attributes[prefixed++].row = at;
            }
            s->tick += 2;
            p = FM_AS(fm_value)(r, s, p, end, quote, reason);
            if (p == NULL) return NULL;
            if (!r->values) s->length = value;
        }
    }
    p += is_empty;
    if (*p++ != '>') fm_give_up(FM_MARKUP);
    if (prefixed > 0) {
        *reason = FM_AS(fm_name_prefixed)(r, prefixed);
        if (*reason != FM_READ) return NULL;
    }
    if (row >= 0) {
        tag = fm_element_tag(r, name);
        if (tag == FM_NO_TAG) fm_give_up(FM_NAME);
        r->tags[row] = tag;
    } else if (name->prefix != r->empty) {
        fm_give_up(FM_NAME);
    }
    if (is_empty) FM_AS(fm_leave)(r, s);
    return p;
}

/* An end tag, from behind its "</" to behind its '>'. */
FM_INLINE const char* FM_AS(fm_finish)(fm_reader* r, fm_place* s, const char* p, const char* end,
                                       int* reason) {
    const fm_name* name = r->open[s->nesting - 1].name;
    if (!FM_AS(fm_goes_on)(p, end, name)) fm_give_up(FM_MARKUP);
    p += name->length;
    if (*p != '>') {
        p = fm_blanks(p);
        if (*p != '>') fm_give_up(FM_MARKUP);
    }
    FM_AS(fm_leave)(r, s);
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

/* A comment, an instruction or a CDATA section inside an element; `p` is at its '<'. Works on the
   place in the reader. */
static const char* FM_AS(fm_other)(fm_reader* r, const char* p, const char* end, int* reason) {
    fm_place* s = &r->place;
    if (p[1] == '!' && !strncmp(p + 2, "[CDATA[", 7))
        return FM_AS(fm_section)(r, s, p + 9, end, reason);
    FM_AS(fm_end_text)(r, s);
    /* Nothing may stand between records. */
    if (s->parent < 0) fm_give_up(FM_MARKUP);
    if (p[1] == '?') return FM_AS(fm_instruction)(p + 2, end, reason);
    if (p[2] == '-' && p[3] == '-') return FM_AS(fm_comment)(p + 4, end, reason);
    fm_give_up(FM_MARKUP);
}

/* The root element and all that is in it, from its '<'. */
static const char* FM_AS(fm_root)(fm_reader* r, const char* p, const char* end, int* reason) {
    fm_place s = {r->tick, r->rows, r->length, -1, -1, 0, 0};
    if (p[1] == '/') fm_give_up(FM_MARKUP);
    do {
        if (*p != '<') {
            p = FM_AS(fm_text)(r, &s, p, end, reason);
        } else if (p[1] == '/') {
            p = FM_AS(fm_finish)(r, &s, p + 2, end, reason);
        } else if (p[1] == '!' || p[1] == '?') {
            r->place = s;
            p = FM_AS(fm_other)(r, p, end, reason);
            s = r->place;
        } else {
            p = FM_AS(fm_start)(r, &s, p + 1, end, reason);
        }
    } while (p != NULL && s.nesting > 0);
    r->rows = s.rows;
    r->length = s.length;
    return p;
}

static int FM_AS(fm_document)(fm_reader* r, const char* p, const char* end) {
    int why = FM_READ;
    int* reason = &why;
    r->document = p;
    r->declared = 0;
    r->elements = 0;
    r->met = 0;
    r->as_is = r->values && r->blanks;
    r->longest_text = r->text_bytes < FM_VALUE_BYTES ? r->text_bytes : FM_VALUE_BYTES;
    r->longest_attribute =
        r->attribute_bytes < FM_VALUE_BYTES ? r->attribute_bytes : FM_VALUE_BYTES;
    if (end - p >= 3 && !memcmp(p, "\xef\xbb\xbf", 3)) p += 3;
    p = FM_AS(fm_declaration_of)(p, reason);
    if (p == NULL) return why;
    if (!FM_AS(fm_valid)(p, end)) return FM_CHARACTER;
    p = FM_AS(fm_around)(p, end, reason);
    if (p == NULL) return why;
    if (p[0] != '<') return FM_MARKUP;
    if (p[1] == '!') return FM_DOCTYPE;
    p = FM_AS(fm_root)(r, p, end, reason);
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
