/* Runs the machines of fmware/xpath/regex.py over a string: all states at a time, each character once. */

#ifndef FMWARE_XPATH_REGEX_H
#define FMWARE_XPATH_REGEX_H

enum { XR_MATCH, XR_SPLIT, XR_JUMP, XR_CLASS, XR_BEGIN, XR_END };

typedef struct {
    XArena* arena;
    const int32_t* code;      /* three numbers an instruction */
    const int32_t* ranges;
    int32_t count;
    int lines;                /* ^ and $ also match at the ends of lines */
    int32_t* states;          /* classes that are waited for */
    int32_t state_count;
    int32_t* seen;            /* by instruction: the character at which it was last entered */
    int32_t* stack;
    int matched;
} XMachine;

/* Enter a state and all that follow from it without reading. */
static void x_enter(XMachine* m, int32_t state, int32_t place, XText text, int64_t at) {
    int32_t top = 0;
    m->stack[top++] = state;
    while (top) {
        const int32_t* i;
        state = m->stack[--top];
        if (m->seen[state] == place)
            continue;
        m->seen[state] = place;
        x_charge(m->arena, 1);
        i = m->code + 3 * state;
        switch (i[0]) {
        case XR_MATCH: m->matched = 1; break;
        case XR_SPLIT:
            m->stack[top++] = i[2];
            m->stack[top++] = i[1];
            break;
        case XR_JUMP: m->stack[top++] = i[1]; break;
        case XR_CLASS: m->states[m->state_count++] = state; break;
        case XR_BEGIN:
            if (at == 0 || (m->lines && text.data[at - 1] == '\n'))
                m->stack[top++] = state + 1;
            break;
        case XR_END:
            if (at == text.size || (m->lines && text.data[at] == '\n'))
                m->stack[top++] = state + 1;
        }
    }
}

static int x_in_class(const XMachine* m, const int32_t* instruction, int32_t c) {
    const int32_t* ranges = m->ranges + 2 * instruction[1];
    int32_t low = 0, high = instruction[2];
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (c > ranges[2 * middle + 1])
            low = middle + 1;
        else if (c < ranges[2 * middle])
            high = middle;
        else
            return 1;
    }
    return 0;
}

/* Whether a pattern is found anywhere in a text. */
static int x_matches(XArena* arena, XText text, XText packed) {
    XMachine m = {.arena = arena};
    int32_t* numbers = x_room(arena, packed.size);
    int32_t *next, count, place = 1;
    int64_t at = 0;
    if (numbers == NULL)
        return 0;
    memcpy(numbers, packed.data, packed.size);   /* the packed bytes need not be aligned */
    m.count = numbers[0];
    m.code = numbers + 1;
    m.lines = m.code[3 * m.count];
    m.ranges = m.code + 3 * m.count + 1;
    m.states = x_room(arena, (int64_t)m.count * sizeof(int32_t));
    next = x_room(arena, (int64_t)m.count * sizeof(int32_t));
    m.seen = x_room(arena, (int64_t)m.count * sizeof(int32_t));
    m.stack = x_room(arena, ((int64_t)m.count * 2 + 2) * sizeof(int32_t));
    if (m.states == NULL || next == NULL || m.seen == NULL || m.stack == NULL)
        return 0;
    memset(m.seen, 0, (int64_t)m.count * sizeof(int32_t));
    for (;;) {
        int width;
        int32_t c, *now;
        x_enter(&m, 0, place, text, at);
        if (m.matched || at >= text.size || arena->stop)
            return m.matched;
        width = x_width(text.data + at);
        c = x_character(text.data + at, width);
        at += width;
        place++;
        now = m.states;
        count = m.state_count;
        m.states = next;
        m.state_count = 0;
        next = now;
        for (int32_t i = 0; i < count; i++)
            if (x_in_class(&m, m.code + 3 * now[i], c))
                x_enter(&m, now[i] + 1, place, text, at);
        if (m.matched)
            return 1;
    }
}

#endif
