/* Evaluates any XPath 1.0 expression on the columns of a document, without Python.

   A program is the packed tree that fmware.xpath.program makes. A document is a view of columns: rows
   in document order, attributes (and namespaces, where they are asked for) behind their element. Node
   -1 is the document. Node-sets are arrays of rows in document order, each once.

   All work is charged to a budget: each node visited, each operation, each 16 bytes copied or compared.
   Memory comes from an arena that has a bound of its own. When either is used up, `stop` is set and
   what was found means nothing: the statement is undecided. Recursion follows the expression, whose
   depth the parser bounds, never the document. */

#ifndef FMWARE_XPATH_EVAL_H
#define FMWARE_XPATH_EVAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE   /* memmem */
#endif

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xpath_text.h"
#include "xpath_regex.h"

enum { XK_ELEMENT, XK_ATTRIBUTE, XK_TEXT, XK_COMMENT, XK_INSTRUCTION, XK_NAMESPACE };
enum { XO_NUMBER, XO_STRING, XO_OR, XO_AND, XO_COMPARE, XO_ARITHMETIC, XO_NEGATE, XO_UNION, XO_CALL,
       XO_PATH, XO_STEP, XO_FILTER, XO_IF };
enum { XA_CHILD, XA_DESCENDANT, XA_DESCENDANT_OR_SELF, XA_ATTRIBUTE, XA_SELF, XA_PARENT, XA_ANCESTOR,
       XA_ANCESTOR_OR_SELF, XA_FOLLOWING_SIBLING, XA_PRECEDING_SIBLING, XA_FOLLOWING, XA_PRECEDING,
       XA_NAMESPACE };
enum { XN_NAME, XN_NODE, XN_TEXT, XN_COMMENT, XN_INSTRUCTION };
enum { XC_EQ, XC_NE, XC_LT, XC_LE, XC_GT, XC_GE };
enum { XF_LAST, XF_POSITION, XF_COUNT, XF_ID, XF_LOCAL_NAME, XF_NAMESPACE_URI, XF_NAME, XF_STRING,
       XF_CONCAT, XF_STARTS_WITH, XF_CONTAINS, XF_SUBSTRING_BEFORE, XF_SUBSTRING_AFTER, XF_SUBSTRING,
       XF_STRING_LENGTH, XF_NORMALIZE_SPACE, XF_TRANSLATE, XF_BOOLEAN, XF_NOT, XF_TRUE, XF_FALSE,
       XF_LANG, XF_NUMBER, XF_SUM, XF_FLOOR, XF_CEILING, XF_ROUND, XF_LOWER, XF_UPPER, XF_ENDS_WITH,
       XF_MATCHES, XF_STRING_JOIN, XF_DATE, XF_DATE_TIME };
enum { XT_NODES, XT_NUMBER, XT_STRING, XT_BOOLEAN };

#define X_POSITIONAL 1   /* flag of a step: a predicate looks at positions */
#define X_DOCUMENT (-1)

typedef struct { int32_t op, a, b, c, kids, count, flags, spare; } XNode;

typedef struct {
    int32_t root, node_count, kid_count, number_count, string_count, needs;
    const XNode* nodes;
    const int32_t* kids;
    const double* numbers;
    const int32_t* string_ends;   /* where each string ends in `bytes` */
    const char* bytes;
} XProgram;

typedef struct {
    const uint8_t* kinds;
    const int32_t* tags;
    const int32_t* parents;
    const int64_t* starts;
    const int64_t* ends;
    const int32_t* offsets;
    const char* text;
    int32_t rows;
    void* names;                                       /* for `in_space` */
    int (*in_space)(void*, int32_t, int32_t);
    void* spaces;                                      /* with `names`, for `spell` */
    int (*spell)(void*, void*, int32_t, XText*, XText*);   /* local, uri; 0: the tag is of many names */
    void** nodes;                                      /* for `name_of`; NULL: use `spell` */
    void (*name_of)(void*, int, const char**, const char**, const char**);  /* prefix, local, uri */
} XView;

typedef struct {
    int type;
    double number;      /* also a boolean */
    XText text;
    int32_t* nodes;
    int32_t count;
} XValue;

typedef struct {
    XView* view;
    const XProgram* program;
    XArena* arena;
} XEval;

typedef struct { int32_t node; int32_t position; int32_t size; } XContext;

static XValue x_eval(XEval* e, int32_t at, XContext c);

/* Point a program at its packed bytes, which stay where they are. 0: they are not one. */
static int x_load(XProgram* program, const uint8_t* packed, int64_t size) {
    const int32_t* head = (const int32_t*)packed;
    int64_t at = 6 * sizeof(int32_t);
    if (size < at)
        return 0;
    program->root = head[0];
    program->node_count = head[1];
    program->kid_count = head[2];
    program->number_count = head[3];
    program->string_count = head[4];
    program->needs = head[5];
    program->nodes = (const XNode*)(packed + at);
    at += (int64_t)program->node_count * sizeof(XNode);
    program->kids = (const int32_t*)(packed + at);
    at += (int64_t)program->kid_count * sizeof(int32_t);
    program->string_ends = (const int32_t*)(packed + at);
    at += (int64_t)program->string_count * sizeof(int32_t);
    at = (at + 7) & ~(int64_t)7;
    program->numbers = (const double*)(packed + at);
    at += (int64_t)program->number_count * sizeof(double);
    program->bytes = (const char*)packed + at;
    if (program->string_count)
        at += program->string_ends[program->string_count - 1];
    return at == size && program->root >= 0 && program->root < program->node_count;
}

/* -- nodes -- */

static inline int32_t x_size(const XView* v, int32_t row) {
    return (int32_t)((v->ends[row] - v->starts[row] + 1) >> 1);
}

static inline int32_t x_end(const XView* v, int32_t node) {
    return node < 0 ? v->rows : node + x_size(v, node);
}

static inline int x_beside(const XView* v, int32_t row) {
    /* Attributes and namespaces are no children. */
    return v->kinds[row] == XK_ATTRIBUTE || v->kinds[row] == XK_NAMESPACE;
}

static XText x_string_of(XEval* e, int32_t node) {
    const XView* v = e->view;
    int32_t last = x_end(v, node), only = -1, texts = 0;
    int64_t total = 0;
    char* to;
    if (node >= 0 && v->kinds[node] != XK_ELEMENT)
        return (XText){v->text + v->offsets[node], v->offsets[node + 1] - v->offsets[node]};
    x_charge(e->arena, last - node);
    for (int32_t i = node + 1; i < last; i++)
        if (v->kinds[i] == XK_TEXT) {
            texts++;
            only = i;
            total += v->offsets[i + 1] - v->offsets[i];
        }
    if (texts <= 1)
        return (XText){texts ? v->text + v->offsets[only] : "", total};
    to = x_room(e->arena, total);
    if (to == NULL)
        return (XText){"", 0};
    total = 0;
    for (int32_t i = node + 1; i < last; i++)
        if (v->kinds[i] == XK_TEXT) {
            int32_t length = v->offsets[i + 1] - v->offsets[i];
            memcpy(to + total, v->text + v->offsets[i], length);
            total += length;
        }
    return (XText){to, total};
}

/* -- conversions -- */

static inline XValue x_number(double value) { return (XValue){.type = XT_NUMBER, .number = value}; }
static inline XValue x_boolean(int value) { return (XValue){.type = XT_BOOLEAN, .number = value != 0}; }
static inline XValue x_text(XText text) { return (XValue){.type = XT_STRING, .text = text}; }

static XText x_to_text(XEval* e, const XValue* value) {
    switch (value->type) {
    case XT_NODES: return value->count ? x_string_of(e, value->nodes[0]) : (XText){"", 0};
    case XT_NUMBER: return x_spell(e->arena, value->number);
    case XT_BOOLEAN: return value->number ? (XText){"true", 4} : (XText){"false", 5};
    default: return value->text;
    }
}

static double x_to_number(XEval* e, const XValue* value) {
    if (value->type == XT_NUMBER || value->type == XT_BOOLEAN)
        return value->number;
    return x_parse(e->arena, x_to_text(e, value));
}

static int x_to_boolean(const XValue* value) {
    switch (value->type) {
    case XT_NODES: return value->count > 0;
    case XT_STRING: return value->text.size > 0;
    default: return value->number != 0 && !isnan(value->number);
    }
}

/* -- comparisons -- */

static int x_numbers(double left, int op, double right) {
    switch (op) {
    case XC_EQ: return left == right;
    case XC_NE: return left != right;
    case XC_LT: return left < right;
    case XC_LE: return left <= right;
    case XC_GT: return left > right;
    default: return left >= right;
    }
}

static int x_same(XEval* e, XText left, XText right) {
    if (left.size != right.size)
        return 0;
    x_charge(e->arena, left.size >> 4);
    return memcmp(left.data, right.data, left.size) == 0;
}

/* Whether a node of the set compares with a string or a number. */
static int x_some(XEval* e, const XValue* set, int op, const XValue* other) {
    int by_text = other->type == XT_STRING && op <= XC_NE;
    double number = by_text ? 0 : x_to_number(e, other);
    for (int32_t i = 0; i < set->count && !e->arena->stop; i++) {
        XMark mark = x_mark(e->arena);
        XText text = x_string_of(e, set->nodes[i]);
        int holds = by_text ? x_same(e, text, other->text) == (op == XC_EQ)
                            : x_numbers(x_parse(e->arena, text), op, number);
        x_release(e->arena, mark);
        if (holds)
            return 1;
    }
    return 0;
}

/* Whether two node-sets have a string in common. */
static int x_common(XEval* e, const XValue* left, const XValue* right) {
    uint32_t slots = 16, at;
    XText* table;
    while (slots < (uint32_t)left->count * 2)
        slots *= 2;
    table = x_room(e->arena, slots * sizeof(XText));
    if (table == NULL)
        return 0;
    memset(table, 0, slots * sizeof(XText));
    for (int32_t i = 0; i < left->count + right->count && !e->arena->stop; i++) {
        int adds = i < left->count;
        XText text = x_string_of(e, adds ? left->nodes[i] : right->nodes[i - left->count]);
        at = (uint32_t)x_hash(e->arena, text) & (slots - 1);
        while (table[at].data != NULL && !x_same(e, table[at], text)) {
            x_charge(e->arena, 1);
            at = (at + 1) & (slots - 1);
        }
        if (!adds && table[at].data != NULL)
            return 1;
        if (adds)
            table[at] = text;
    }
    return 0;
}

/* Whether two node-sets have strings that differ. */
static int x_differ(XEval* e, const XValue* left, const XValue* right) {
    XText first;
    if (!left->count || !right->count)
        return 0;
    first = x_string_of(e, left->nodes[0]);
    for (int32_t i = 0; i < left->count + right->count && !e->arena->stop; i++) {
        int32_t node = i < left->count ? left->nodes[i] : right->nodes[i - left->count];
        if (!x_same(e, first, x_string_of(e, node)))
            return 1;
    }
    return 0;
}

/* The least or the greatest number of a node-set; NaN if there is none. */
static double x_extreme(XEval* e, const XValue* set, int greatest) {
    double best = NAN;
    for (int32_t i = 0; i < set->count && !e->arena->stop; i++) {
        XMark mark = x_mark(e->arena);
        double number = x_parse(e->arena, x_string_of(e, set->nodes[i]));
        x_release(e->arena, mark);
        if (isnan(best) || (greatest ? number > best : number < best))
            best = number;
    }
    return best;
}

static int x_compare(XEval* e, const XValue* left, int op, const XValue* right) {
    static const int flipped[] = {XC_EQ, XC_NE, XC_GT, XC_GE, XC_LT, XC_LE};
    int sets = (left->type == XT_NODES) + (right->type == XT_NODES);
    if (left->type == XT_BOOLEAN || right->type == XT_BOOLEAN) {
        if (sets || op <= XC_NE)
            return x_numbers(x_to_boolean(left), op, x_to_boolean(right));
        return x_numbers(x_to_number(e, left), op, x_to_number(e, right));
    }
    if (sets == 2) {
        if (op == XC_EQ)
            return x_common(e, left, right);
        if (op == XC_NE)
            return x_differ(e, left, right);
        return x_numbers(x_extreme(e, left, op >= XC_GT), op, x_extreme(e, right, op < XC_GT));
    }
    if (left->type == XT_NODES)
        return x_some(e, left, op, right);
    if (right->type == XT_NODES)
        return x_some(e, right, flipped[op], left);
    if (op <= XC_NE && left->type == XT_STRING && right->type == XT_STRING)
        return x_same(e, left->text, right->text) == (op == XC_EQ);
    return x_numbers(x_to_number(e, left), op, x_to_number(e, right));
}

/* -- node-sets -- */

static int x_by_row(const void* left, const void* right) {
    int32_t a = *(const int32_t*)left, b = *(const int32_t*)right;
    return a < b ? -1 : a > b;
}

/* Document order, each node once. */
static void x_normalise(XEval* e, XRows* rows) {
    int32_t kept = 1, i = 1;
    while (i < rows->count && rows->items[i] > rows->items[i - 1])
        i++;
    if (i >= rows->count)
        return;
    x_charge(e->arena, (int64_t)rows->count * 4);
    qsort(rows->items, rows->count, sizeof(int32_t), x_by_row);
    for (i = 1; i < rows->count; i++)
        if (rows->items[i] != rows->items[kept - 1])
            rows->items[kept++] = rows->items[i];
    rows->count = kept;
}

static int x_test(XEval* e, const XNode* step, int32_t node) {
    const XView* v = e->view;
    int kind, principal;
    const char *prefix, *local, *uri;
    x_charge(e->arena, 1);
    if (node < 0)
        return step->b == XN_NODE;
    kind = v->kinds[node];
    switch (step->b) {
    case XN_NODE: return 1;
    case XN_TEXT: return kind == XK_TEXT;
    case XN_COMMENT: return kind == XK_COMMENT;
    case XN_INSTRUCTION:
        if (kind != XK_INSTRUCTION)
            return 0;
        if (step->c < 0)
            return 1;
        v->name_of(v->nodes[node], kind, &prefix, &local, &uri);
        return x_same(e, x_literal(local), x_string(e->program->string_ends, e->program->bytes, step->c));
    }
    principal = step->a == XA_ATTRIBUTE ? XK_ATTRIBUTE
              : step->a == XA_NAMESPACE ? XK_NAMESPACE : XK_ELEMENT;
    if (kind != principal)
        return 0;
    if (step->c >= 0)
        return v->tags[node] == step->c;
    return step->c == -1 || (v->tags[node] > 0 && v->in_space(v->names, v->tags[node], -2 - step->c));
}

#define X_EMIT(NODE) do { int32_t n_ = (NODE); \
    if (x_test(e, step, n_) && !x_push(e->arena, out, n_)) return; } while (0)

/* The nodes of a step from one context node, in the order of the axis. */
static void x_axis(XEval* e, const XNode* step, int32_t node, XRows* out) {
    const XView* v = e->view;
    int plain = node >= 0 && v->kinds[node] != XK_ELEMENT;   /* has no nodes below it */
    int beside = node >= 0 && x_beside(v, node);
    int32_t last = x_end(v, node), parent = node < 0 ? X_DOCUMENT : v->parents[node], i, begin;
    switch (step->a) {
    case XA_CHILD:
        if (plain)
            return;
        for (i = node + 1; i < last && !e->arena->stop; i += x_size(v, i))
            if (!x_beside(v, i))
                X_EMIT(i);
        return;
    case XA_DESCENDANT_OR_SELF:
        X_EMIT(node);
        /* fall through */
    case XA_DESCENDANT:
        if (plain)
            return;
        for (i = node + 1; i < last && !e->arena->stop; i++)
            if (!x_beside(v, i))
                X_EMIT(i);
        return;
    case XA_ATTRIBUTE:
    case XA_NAMESPACE:
        if (plain || node < 0)
            return;
        for (i = node + 1; i < last && x_beside(v, i) && !e->arena->stop; i++)
            if (v->kinds[i] == (step->a == XA_ATTRIBUTE ? XK_ATTRIBUTE : XK_NAMESPACE))
                X_EMIT(i);
        return;
    case XA_SELF:
        X_EMIT(node);
        return;
    case XA_PARENT:
        if (node >= 0)
            X_EMIT(parent);
        return;
    case XA_ANCESTOR_OR_SELF:
        X_EMIT(node);
        /* fall through */
    case XA_ANCESTOR:
        while (node >= 0 && !e->arena->stop) {
            node = v->parents[node];
            X_EMIT(node);
        }
        return;
    case XA_FOLLOWING_SIBLING:
        if (node < 0 || beside)
            return;
        last = x_end(v, parent);
        for (i = node + x_size(v, node); i < last && !e->arena->stop; i += x_size(v, i))
            X_EMIT(i);
        return;
    case XA_PRECEDING_SIBLING:
        if (node < 0 || beside)
            return;
        begin = out->count;
        for (i = parent + 1; i < node && !e->arena->stop; i += x_size(v, i))
            if (!x_beside(v, i))
                X_EMIT(i);
        x_reverse(out, begin);
        return;
    case XA_FOLLOWING:
        if (node < 0)
            return;
        for (i = last; i < v->rows && !e->arena->stop; i++)
            if (!x_beside(v, i))
                X_EMIT(i);
        return;
    case XA_PRECEDING:
        for (i = (beside ? parent : node) - 1; i >= 0 && !e->arena->stop; i--)
            if (!x_beside(v, i) && i + x_size(v, i) <= node)
                X_EMIT(i);
    }
}

/* Keep, of the rows from `begin` on, those that fulfil a predicate. */
static void x_keep(XEval* e, int32_t predicate, XRows* rows, int32_t begin) {
    const XNode* test = &e->program->nodes[predicate];
    int32_t size = rows->count - begin, kept = begin;
    if (test->op == XO_NUMBER) {
        double wanted = e->program->numbers[test->a];
        if (wanted >= 1 && wanted <= size && wanted == floor(wanted)) {
            rows->items[begin] = rows->items[begin + (int32_t)wanted - 1];
            kept = begin + 1;
        }
        rows->count = kept;
        return;
    }
    for (int32_t i = 0; i < size && !e->arena->stop; i++) {
        XMark mark = x_mark(e->arena);
        XContext c = {rows->items[begin + i], i + 1, size};
        XValue value = x_eval(e, predicate, c);
        int holds = value.type == XT_NUMBER ? value.number == i + 1 : x_to_boolean(&value);
        x_release(e->arena, mark);
        if (holds)
            rows->items[kept++] = rows->items[begin + i];
    }
    rows->count = kept;
}

/* Of contexts whose results contain those of others, only these need be followed. */
static int32_t x_sole(const XView* v, const XNode* step, const int32_t* nodes, int32_t count) {
    int32_t best = 0;
    if (step->a == XA_PRECEDING)
        return count - 1;
    for (int32_t i = 1; i < count; i++) {
        if (nodes[best] < 0 || (nodes[i] >= 0 && x_end(v, nodes[i]) < x_end(v, nodes[best])))
            best = i;
    }
    return best;
}

static void x_step(XEval* e, const XNode* step, const int32_t* nodes, int32_t count, XRows* out) {
    const int32_t* kids = e->program->kids + step->kids;
    int free_ = !(step->flags & X_POSITIONAL);
    int deep = free_ && (step->a == XA_DESCENDANT || step->a == XA_DESCENDANT_OR_SELF);
    int32_t covered = -1, compact = 2 * e->view->rows + 1024;
    if (free_ && count > 1 && (step->a == XA_FOLLOWING || step->a == XA_PRECEDING)) {
        nodes += x_sole(e->view, step, nodes, count);
        count = 1;
    }
    for (int32_t i = 0; i < count && !e->arena->stop; i++) {
        int32_t begin = out->count;
        if (deep && nodes[i] < covered && !(nodes[i] >= 0 && x_beside(e->view, nodes[i])))
            continue;
        x_charge(e->arena, 2);
        x_axis(e, step, nodes[i], out);
        for (int32_t j = 0; j < step->count && out->count > begin; j++)
            x_keep(e, kids[j], out, begin);
        if (deep)
            covered = x_end(e->view, nodes[i]);
        if (out->count > compact)
            x_normalise(e, out);
    }
    x_normalise(e, out);
}

static XValue x_path(XEval* e, const XNode* path, XContext c) {
    const int32_t* kids = e->program->kids + path->kids;
    int32_t first = 0, start = path->a == 1 ? X_DOCUMENT : c.node;
    int32_t* nodes = &start;
    int32_t count = 1;
    XValue from, found = {.type = XT_NODES};
    XRows* rows;
    if (path->a == 2) {
        from = x_eval(e, kids[0], c);
        nodes = from.nodes;
        count = from.count;
        first = 1;
    }
    for (int32_t i = first; i < path->count && !e->arena->stop; i++) {
        rows = x_rows(e->arena);
        if (rows == NULL)
            return found;
        x_step(e, &e->program->nodes[kids[i]], nodes, count, rows);
        nodes = x_take(e->arena, rows, &count);
    }
    if (nodes == &start) {
        nodes = x_room(e->arena, sizeof(int32_t));
        if (nodes == NULL)
            return found;
        nodes[0] = start;
    }
    found.nodes = nodes;
    found.count = e->arena->stop ? 0 : count;
    return found;
}

static XValue x_merge(XEval* e, const XNode* node, XContext c) {
    const int32_t* kids = e->program->kids + node->kids;
    XValue found = {.type = XT_NODES}, each;
    XRows merged = {0};
    for (int32_t i = 0; i < node->count && !e->arena->stop; i++) {
        each = x_eval(e, kids[i], c);
        for (int32_t j = 0; j < each.count; j++)
            if (!x_push(e->arena, &merged, each.nodes[j]))
                break;
    }
    x_normalise(e, &merged);
    found.nodes = x_take(e->arena, &merged, &found.count);
    return found;
}

static XValue x_filter(XEval* e, const XNode* node, XContext c) {
    const int32_t* kids = e->program->kids + node->kids;
    XValue found = x_eval(e, kids[0], c);
    XRows rows = {found.nodes, found.count, found.count};
    /* The array is this value's own, so predicates may shrink it in place. */
    for (int32_t i = 1; i < node->count && rows.count; i++)
        x_keep(e, kids[i], &rows, 0);
    found.count = rows.count;
    return found;
}

#include "xpath_calls.h"

/* -- expressions -- */

static double x_arithmetic(int op, double left, double right) {
    switch (op) {
    case 0: return left + right;
    case 1: return left - right;
    case 2: return left * right;
    case 3: return left / right;
    default: return fmod(left, right);
    }
}

static XValue x_eval(XEval* e, int32_t at, XContext c) {
    const XNode* node = &e->program->nodes[at];
    const int32_t* kids = e->program->kids + node->kids;
    XValue left, right;
    x_charge(e->arena, 2);
    if (e->arena->stop)
        return x_boolean(0);
    switch (node->op) {
    case XO_NUMBER: return x_number(e->program->numbers[node->a]);
    case XO_STRING: return x_text(x_string(e->program->string_ends, e->program->bytes, node->a));
    case XO_OR:
    case XO_AND:
        for (int32_t i = 0; i < node->count; i++) {
            left = x_eval(e, kids[i], c);
            if (x_to_boolean(&left) == (node->op == XO_OR))
                return x_boolean(node->op == XO_OR);
        }
        return x_boolean(node->op == XO_AND);
    case XO_COMPARE:
        left = x_eval(e, kids[0], c);
        right = x_eval(e, kids[1], c);
        return x_boolean(x_compare(e, &left, node->a, &right));
    case XO_ARITHMETIC:
        left = x_eval(e, kids[0], c);
        right = x_eval(e, kids[1], c);
        return x_number(x_arithmetic(node->a, x_to_number(e, &left), x_to_number(e, &right)));
    case XO_NEGATE:
        left = x_eval(e, kids[0], c);
        return x_number(-x_to_number(e, &left));
    case XO_UNION: return x_merge(e, node, c);
    case XO_PATH: return x_path(e, node, c);
    case XO_FILTER: return x_filter(e, node, c);
    case XO_IF:
        left = x_eval(e, kids[0], c);
        return x_eval(e, kids[x_to_boolean(&left) ? 1 : 2], c);
    default: return x_call(e, node, c);
    }
}

#endif
