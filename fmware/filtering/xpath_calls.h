/* The functions of xpath_eval.h, which includes this file. */

static XText x_before(XEval* e, XText text, XText part) {
    int64_t at = x_find(e->arena, text, part);
    return (XText){text.data, at < 0 ? 0 : at};
}

static XText x_after(XEval* e, XText text, XText part) {
    int64_t at = x_find(e->arena, text, part);
    if (at < 0)
        return (XText){"", 0};
    return (XText){text.data + at + part.size, text.size - at - part.size};
}

/* The characters from `from` on and before `to`, which count from 1; NaN as a bound lets none pass. */
static XText x_between(XEval* e, XText text, double from, double to) {
    int64_t begin = -1, at = 0;
    double place = 1;
    x_charge(e->arena, text.size >> 3);
    while (at < text.size) {
        int inside = place >= from && place < to;
        if (inside && begin < 0)
            begin = at;
        if (!inside && begin >= 0)
            break;
        at += x_width(text.data + at);
        place += 1;
    }
    return begin < 0 ? (XText){"", 0} : (XText){text.data + begin, at - begin};
}

static XText x_normalise_space(XEval* e, XText text) {
    char* to = x_room(e->arena, text.size + 1);
    int64_t size = 0;
    if (to == NULL)
        return (XText){"", 0};
    for (int64_t i = 0; i < text.size; i++) {
        if (!x_is_blank(text.data[i]))
            to[size++] = text.data[i];
        else if (size && to[size - 1] != ' ')
            to[size++] = ' ';
    }
    if (size && to[size - 1] == ' ')
        size--;
    return (XText){to, size};
}

static XText x_translate(XEval* e, XText text, XText from, XText into) {
    int64_t size = 0;
    /* A character may become one of four bytes. */
    char* to = x_room(e->arena, text.size * 4 + 1);
    if (to == NULL)
        return (XText){"", 0};
    for (int64_t i = 0; i < text.size && !e->arena->stop;) {
        int width = x_width(text.data + i);
        int64_t f = 0, t = 0;
        while (f < from.size) {
            int other = x_width(from.data + f);
            if (other == width && memcmp(from.data + f, text.data + i, width) == 0)
                break;
            f += other;
            t += t < into.size ? x_width(into.data + t) : 0;
        }
        x_charge(e->arena, 1 + (f >> 2));
        if (f >= from.size) {
            memcpy(to + size, text.data + i, width);
            size += width;
        } else if (t < into.size) {
            int other = x_width(into.data + t);
            memcpy(to + size, into.data + t, other);
            size += other;
        }
        i += width;
    }
    return (XText){to, size};
}

static XText x_concat(XEval* e, const XNode* node, XContext c) {
    const int32_t* kids = e->program->kids + node->kids;
    XText* parts = x_room(e->arena, node->count * sizeof(XText));
    int64_t total = 0;
    char* to;
    if (parts == NULL)
        return (XText){"", 0};
    for (int32_t i = 0; i < node->count; i++) {
        XValue value = x_eval(e, kids[i], c);
        parts[i] = x_to_text(e, &value);
        total += parts[i].size;
    }
    to = x_room(e->arena, total + 1);
    if (to == NULL)
        return (XText){"", 0};
    total = 0;
    for (int32_t i = 0; i < node->count; i++) {
        memcpy(to + total, parts[i].data, parts[i].size);
        total += parts[i].size;
    }
    return (XText){to, total};
}

/* The strings of a node-set with a text between them. */
static XText x_join(XEval* e, const XValue* set, XText between) {
    XText* parts = x_room(e->arena, (int64_t)set->count * sizeof(XText) + 1);
    int64_t total = 0;
    char* to;
    if (parts == NULL)
        return (XText){"", 0};
    for (int32_t i = 0; i < set->count && !e->arena->stop; i++) {
        parts[i] = x_string_of(e, set->nodes[i]);
        total += parts[i].size + between.size;
    }
    to = e->arena->stop ? NULL : x_room(e->arena, total + 1);
    if (to == NULL)
        return (XText){"", 0};
    total = 0;
    for (int32_t i = 0; i < set->count; i++) {
        memcpy(to + total, parts[i].data, parts[i].size);
        total += parts[i].size;
        if (i + 1 < set->count) {
            memcpy(to + total, between.data, between.size);
            total += between.size;
        }
    }
    return (XText){to, total};
}

static XText x_name(XEval* e, int which, int32_t node) {
    const XView* v = e->view;
    const char *prefix = NULL, *local = NULL, *uri = NULL;
    XText head, tail;
    char* to;
    if (node < 0)
        return (XText){"", 0};
    if (v->nodes == NULL) {
        if (v->kinds[node] == XK_TEXT)
            return (XText){"", 0};
        /* The columns have no prefixes, and one tag for all names that no statement uses. */
        if (!v->spell(v->names, v->spaces, v->tags[node], &tail, &head)
            || (which == XF_NAME && head.size)) {
            e->arena->stop = X_UNSPELLED;
            return (XText){"", 0};
        }
        return which == XF_NAMESPACE_URI ? head : tail;
    }
    v->name_of(v->nodes[node], v->kinds[node], &prefix, &local, &uri);
    if (which == XF_NAMESPACE_URI)
        return x_literal(uri);
    tail = x_literal(local);
    if (which == XF_LOCAL_NAME || prefix == NULL || *prefix == 0)
        return tail;
    head = x_literal(prefix);
    to = x_room(e->arena, head.size + tail.size + 1);
    if (to == NULL)
        return (XText){"", 0};
    memcpy(to, head.data, head.size);
    to[head.size] = ':';
    memcpy(to + head.size + 1, tail.data, tail.size);
    return (XText){to, head.size + tail.size + 1};
}

/* Whether the nearest xml:lang is a language or a dialect of it; `tag` is that of xml:lang. */
static int x_lang(XEval* e, int32_t node, int32_t tag, XText wanted) {
    const XView* v = e->view;
    for (; node >= 0 && !e->arena->stop; node = v->parents[node]) {
        int32_t last = x_end(v, node);
        if (v->kinds[node] != XK_ELEMENT)
            continue;
        for (int32_t i = node + 1; i < last && x_beside(v, i); i++) {
            XText found;
            x_charge(e->arena, 1);
            if (v->kinds[i] != XK_ATTRIBUTE || v->tags[i] != tag)
                continue;
            found = x_string_of(e, i);
            if (found.size < wanted.size || (found.size > wanted.size && found.data[wanted.size] != '-'))
                return 0;
            for (int64_t j = 0; j < wanted.size; j++)
                if ((found.data[j] | 32) != (wanted.data[j] | 32) && found.data[j] != wanted.data[j])
                    return 0;
            return 1;
        }
    }
    return 0;
}

/* Add the first element with each of the ids in a string; `tag` is that of xml:id. */
static void x_ids(XEval* e, XText text, int32_t tag, XRows* out) {
    const XView* v = e->view;
    int64_t at = 0, end;
    while (at < text.size && !e->arena->stop) {
        XText wanted;
        while (at < text.size && x_is_blank(text.data[at]))
            at++;
        for (end = at; end < text.size && !x_is_blank(text.data[end]); end++) {}
        wanted = (XText){text.data + at, end - at};
        at = end;
        for (int32_t i = 0; wanted.size && i < v->rows && !e->arena->stop; i++) {
            x_charge(e->arena, 1);
            if (v->kinds[i] == XK_ATTRIBUTE && v->tags[i] == tag && x_same(e, x_string_of(e, i), wanted)) {
                x_push(e->arena, out, v->parents[i]);
                break;
            }
        }
    }
}

static XValue x_id(XEval* e, const XNode* node, const XValue* of) {
    XValue found = {.type = XT_NODES};
    XRows rows = {0};
    if (of->type == XT_NODES)
        for (int32_t i = 0; i < of->count && !e->arena->stop; i++)
            x_ids(e, x_string_of(e, of->nodes[i]), node->c, &rows);
    else
        x_ids(e, x_to_text(e, of), node->c, &rows);
    x_normalise(e, &rows);
    found.nodes = x_take(e->arena, &rows, &found.count);
    return found;
}

static double x_sum(XEval* e, const XValue* set) {
    double total = 0;
    for (int32_t i = 0; i < set->count && !e->arena->stop; i++) {
        XMark mark = x_mark(e->arena);
        total += x_parse(e->arena, x_string_of(e, set->nodes[i]));
        x_release(e->arena, mark);
    }
    return total;
}

static double x_round(double value) {
    return value >= -0.5 && value < 0 ? -0.0 : isfinite(value) ? floor(value + 0.5) : value;
}

/* A function of strings, whose arguments are evaluated. */
static XValue x_text_call(XEval* e, int function, const XText* args, const XValue* values, int count) {
    double from, to;
    switch (function) {
    case XF_STARTS_WITH:
        x_charge(e->arena, args[1].size >> 4);
        return x_boolean(args[0].size >= args[1].size && !memcmp(args[0].data, args[1].data, args[1].size));
    case XF_CONTAINS: return x_boolean(x_find(e->arena, args[0], args[1]) >= 0);
    case XF_SUBSTRING_BEFORE: return x_text(x_before(e, args[0], args[1]));
    case XF_SUBSTRING_AFTER: return x_text(x_after(e, args[0], args[1]));
    case XF_SUBSTRING:
        from = x_round(x_to_number(e, &values[1]));
        to = count > 2 ? from + x_round(x_to_number(e, &values[2])) : INFINITY;
        return x_text(x_between(e, args[0], from, to));
    case XF_STRING_LENGTH: return x_number((double)x_length(e->arena, args[0]));
    case XF_NORMALIZE_SPACE: return x_text(x_normalise_space(e, args[0]));
    case XF_LOWER: return x_text(x_recase(e->arena, args[0], &x_lower_cases));
    case XF_UPPER: return x_text(x_recase(e->arena, args[0], &x_upper_cases));
    case XF_ENDS_WITH:
        x_charge(e->arena, args[1].size >> 4);
        return x_boolean(args[0].size >= args[1].size
                         && !memcmp(args[0].data + args[0].size - args[1].size, args[1].data, args[1].size));
    case XF_MATCHES: return x_boolean(x_matches(e->arena, args[0], args[1]));
    case XF_STRING_JOIN: return x_text(x_join(e, &values[0], args[1]));
    case XF_DATE:
    case XF_DATE_TIME: return x_number(x_moment(e->arena, args[0], function == XF_DATE_TIME));
    case XF_TRANSLATE: return x_text(x_translate(e, args[0], args[1], args[2]));
    default: return x_text(args[0]);   /* string() */
    }
}

static XValue x_node_call(XEval* e, const XNode* node, const XValue* of) {
    switch (node->a) {
    case XF_COUNT: return x_number(of->count);
    case XF_SUM: return x_number(x_sum(e, of));
    case XF_ID: return x_id(e, node, of);
    default: return x_text(of->count ? x_name(e, node->a, of->nodes[0]) : (XText){"", 0});
    }
}

static XValue x_call(XEval* e, const XNode* node, XContext c) {
    const int32_t* kids = e->program->kids + node->kids;
    XValue values[3];
    XText args[3];
    int count = node->count;
    switch (node->a) {
    case XF_LAST: return x_number(c.size);
    case XF_POSITION: return x_number(c.position);
    case XF_TRUE: return x_boolean(1);
    case XF_FALSE: return x_boolean(0);
    case XF_CONCAT: return x_text(x_concat(e, node, c));
    }
    for (int i = 0; i < count; i++)
        values[i] = x_eval(e, kids[i], c);
    if (count == 0) {
        /* What is left without arguments is about the context node. */
        values[0] = (XValue){.type = XT_NODES, .nodes = &c.node, .count = 1};
        count = 1;
    }
    switch (node->a) {
    case XF_COUNT:
    case XF_SUM:
    case XF_ID:
    case XF_LOCAL_NAME:
    case XF_NAMESPACE_URI:
    case XF_NAME: return x_node_call(e, node, &values[0]);
    case XF_BOOLEAN: return x_boolean(x_to_boolean(&values[0]));
    case XF_NOT: return x_boolean(!x_to_boolean(&values[0]));
    case XF_LANG: return x_boolean(x_lang(e, c.node, node->c, x_to_text(e, &values[0])));
    case XF_NUMBER: return x_number(x_to_number(e, &values[0]));
    case XF_FLOOR: return x_number(floor(x_to_number(e, &values[0])));
    case XF_CEILING: return x_number(ceil(x_to_number(e, &values[0])));
    case XF_ROUND: return x_number(x_round(x_to_number(e, &values[0])));
    }
    for (int i = 0; i < count; i++)
        args[i] = node->a == XF_STRING_JOIN && i == 0 ? (XText){"", 0} : x_to_text(e, &values[i]);
    return x_text_call(e, node->a, args, values, count);
}
