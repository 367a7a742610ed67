/* queue.c -- the nodes of the search, as a heap. */
#include "queue.h"
#include "room.h"

/* Of layouts that are as fast: with less memory, or more of zero. */
static bool is_smaller(const PlanResult *a, const PlanResult *b)
{
    const int64_t more = a->arena + a->beside - b->arena - b->beside;
    return more < 0 || (more == 0 && a->layout.zero > b->layout.zero);
}

static bool is_before(const Node *a, const Node *b)
{
    if (a->bound != b->bound)
        return a->bound < b->bound;
    return a->level > b->level || (a->level == COMPILED && b->level == COMPILED && is_smaller(a->result, b->result));
}

static void swap(Node *a, Node *b)
{
    const Node c = *a;
    *a = *b, *b = c;
}

void push_node(Queue *q, Node node)
{
    q->node = room_for(q->arena, q->node, sizeof node, q->count, 1, &q->room);
    q->node[q->count] = node;
    for (int i = q->count++; i && is_before(&q->node[i], &q->node[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&q->node[i], &q->node[(i - 1) / 2]);
}

Node pop_node(Queue *q)
{
    const Node first = q->node[0];
    q->node[0] = q->node[--q->count];
    for (int i = 0;;) {
        int least = i;
        for (int k = 2 * i + 1; k <= 2 * i + 2 && k < q->count; k++)
            least = is_before(&q->node[k], &q->node[least]) ? k : least;
        if (least == i)
            return first;
        swap(&q->node[i], &q->node[least]);
        i = least;
    }
}
