/* fuse_reach.c -- decides whether two groups may be merged: no path may leave the first and enter the second through
 * other nodes.
 *
 * Nodes are groups, and ops in no group; each has a rank, lower than those of the nodes that depend on it.  So a path
 * from one group to another is searched only among nodes ranked between them.  When groups are merged, these nodes are
 * reordered: predecessors of the later group before the merged one, successors of the earlier group after it (D. J.
 * Pearce, P. H. J. Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2006).
 */
#include "fuse.h"

/* A node is named by the first op of its group, or by its op. */
static int node_of(const Fusion *p, int op)
{
    const FusionGroup *g = final_group(p->group[op]);
    return g ? g->index : op;
}

/* --- Ranks to begin with: each op is a node ------------------------------------------------------- */

static void rank_op(Fusion *p, int op, int *next)
{
    if (p->rank[op] >= 0)
        return;
    p->rank[op] = 0;
    for (int i = 0; i < p->needs[op].count; i++)
        rank_op(p, p->needs[op].at[i], next);
    p->rank[op] = *next;
    p->node[(*next)++] = op;
}

void rank_ops(Fusion *p)
{
    int next = 0;
    for (int i = 0; i < p->n; i++)
        p->rank[i] = -1;
    for (int i = 0; i < p->n; i++)
        rank_op(p, i, &next);
}

/* --- What stands between two nodes ------------------------------------------------------------------ */

/* Far more than the ops of one layer.  Groups further apart are not merged: the search would cost more than the kernel
 * gains. */
enum { MOST_BETWEEN = 4000 };

typedef struct {
    Fusion *p;
    const Numbers *edges; /* users, or needs */
    int from, to;         /* nodes */
    int found;            /* a node on a path to the other; -1: none */
    bool many;
    Numbers *between; /* reached nodes, except both */
} Search;

static bool is_between(const Fusion *p, int node, int a, int b)
{
    int low = p->rank[a] < p->rank[b] ? p->rank[a] : p->rank[b], high = p->rank[a] + p->rank[b] - low;
    return p->rank[node] > low && p->rank[node] < high;
}

static void visit(Search *s, int node)
{
    for (int op = node; op >= 0 && s->found < 0 && !s->many; op = s->p->group[op] ? s->p->sibling[op] : -1)
        for (int i = 0; i < s->edges[op].count; i++) {
            int next = node_of(s->p, s->edges[op].at[i]);
            if (next == s->to && node != s->from)
                s->found = node;
            if (next == s->to || s->p->seen[next] == s->p->stamp || !is_between(s->p, next, s->from, s->to))
                continue;
            s->p->seen[next] = s->p->stamp;
            push_number(&s->p->m->arena, s->between, next);
            s->many |= s->between->count > MOST_BETWEEN;
        }
}

/* All nodes between the two that are reachable from the first, or a path to the other. */
static Search search(Fusion *p, const FusionGroup *from, const FusionGroup *to)
{
    const bool up = p->rank[from->index] < p->rank[to->index];
    Search s = { .p = p,
                 .edges = up ? p->users : p->needs,
                 .from = from->index,
                 .to = to->index,
                 .found = -1,
                 .between = up ? &p->after : &p->before };
    p->stamp++;
    visit(&s, s.from);
    for (int i = 0; i < s.between->count && s.found < 0 && !s.many; i++)
        visit(&s, s.between->at[i]);
    return s;
}

/* Has a path been found before?  It remains valid while the noted op is in neither group. */
bool stay_apart(const Fusion *p, const FusionGroup *a, const FusionGroup *b)
{
    if (final_group(a->apart) != b)
        return false;
    int node = node_of(p, a->between);
    return node != a->index && node != b->index;
}

/* Searches from the smaller one: if it reaches no node in between, it can take the other's rank. */
bool has_way_around(Fusion *p, FusionGroup *a, FusionGroup *b)
{
    const FusionGroup *small = a->size < b->size ? a : b, *large = small == a ? b : a;
    p->before.count = p->after.count = 0;
    p->stays = large->index;
    Search s = search(p, small, large);
    if (s.found < 0 && !s.many && s.between->count > 0)
        s = search(p, large, small);
    if (s.found >= 0) {
        a->apart = b, b->apart = a;
        a->between = b->between = s.found;
    }
    return s.found >= 0 || s.many;
}

/* --- Merging two nodes -------------------------------------------------------------------------------- */

static void rank_node(Fusion *p, int node, int rank)
{
    p->rank[node] = rank;
    p->node[rank] = node;
}

/* Sorts the nodes by rank; the ranks are stored in `pool`. */
static void sort_by_rank(const Fusion *p, Numbers *nodes, Numbers *pool)
{
    for (int i = 0; i < nodes->count; i++)
        nodes->at[i] = p->rank[nodes->at[i]];
    sort_numbers(nodes);
    for (int i = 0; i < nodes->count; i++) {
        push_number(&p->m->arena, pool, nodes->at[i]);
        nodes->at[i] = p->node[nodes->at[i]];
    }
}

void join_ranks(Fusion *p, int first, int second, int joined)
{
    Numbers *pool = &p->pool;
    if (!p->before.count && !p->after.count) {
        rank_node(p, joined, p->rank[p->stays]);
        return;
    }
    pool->count = 0;
    push_number(&p->m->arena, pool, p->rank[first]);
    push_number(&p->m->arena, pool, p->rank[second]);
    sort_by_rank(p, &p->before, pool);
    sort_by_rank(p, &p->after, pool);
    sort_numbers(pool);
    int next = 0;
    for (int i = 0; i < p->before.count; i++)
        rank_node(p, p->before.at[i], pool->at[next++]);
    rank_node(p, joined, pool->at[next]);
    next += 2; /* one rank is left over */
    for (int i = 0; i < p->after.count; i++)
        rank_node(p, p->after.at[i], pool->at[next++]);
}
