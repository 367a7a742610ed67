/* cuda_group.c -- kernels that share a launch, and the kernel that distributes its blocks among them. */
#include "cuda_group.h"

#include "cuda_row.h"
#include "needed.h"
#include "schedule/slots.h"
#include "templates.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_POINTERS = MAX_KERNEL_VALUES + 1 }; /* with scratch */

/* --- Which ------------------------------------------------------------------------------------------ */

static CudaMember member_kind(Module *m, const Op *op)
{
    const Func *kernel = row_kernel_of(m, op);
    return kernel ? cuda_member(m, kernel) : NO_MEMBER;
}

bool is_view_only(const Op *op) { return info(op)->family == VIEW && !(info(op)->traits & WAITS); }

static const Op *next_of(const Op *op)
{
    do
        op = op->next;
    while (op && is_view_only(op));
    return op;
}

/* Contiguous bytes of a value, and the pitch of such pieces; 0: the pitch is not constant. */
static int64_t piece_of(const Module *m, const Value *value, int64_t *pitch)
{
    int64_t bytes = dtype_bytes(value->type.dtype), run = 1;
    int i = value->type.rank - 1;
    for (; i >= 0; i--) {
        int64_t size = local_size(m, &value->type.dim[i]);
        if (size > 1 && value->storage->stride[i] != run)
            break;
        run *= size;
    }
    *pitch = i >= 0 ? value->storage->stride[i] * bytes : 0;
    for (; i >= 0; i--)
        if (local_size(m, &value->type.dim[i]) > 1 && value->storage->stride[i] * bytes % *pitch)
            *pitch = 0;
    return run * bytes;
}

/* Are both interleaved, like weights that a product reads as one? */
static bool are_interleaved(const Module *m, const Value *a, const Value *b, int64_t distance)
{
    int64_t pitch, pitch_of_b, run = piece_of(m, a, &pitch), run_of_b = piece_of(m, b, &pitch_of_b);
    if (pitch <= 0 || pitch != pitch_of_b)
        return false;
    int64_t ahead = (distance % pitch + pitch) % pitch; /* from a piece of a to the next of b */
    return ahead >= run && ahead + run_of_b <= pitch;
}

/* May two values overlap?  In a called function this is known only for equal pointers: several may point into one
 * tensor. */
static bool may_overlap(const Module *m, const Value *a, const Value *b)
{
    const Storage *x = a->storage, *y = b->storage;
    if (!x || !y)
        return true;
    if (!same_base(x, y))
        return false;
    int64_t from = x->at, other = y->at;
    return from < other + span_bytes(m, b) && other < from + span_bytes(m, a) &&
           !are_interleaved(m, a, b, other - from);
}

static bool overlaps_any(const Module *m, const Values *a, const Values *b)
{
    for (int i = 0; i < a->count; i++)
        for (int j = 0; j < b->count; j++)
            if (may_overlap(m, a->at[i], b->at[j]))
                return true;
    return false;
}

/* Does the value overlap the op's scratch?  Scratch is in the frame: pointers are not. */
static bool is_scratch_of(Module *m, const Op *op, const Value *value)
{
    const Storage *s = value->storage;
    int64_t bytes = cuda_scratch_bytes(m, op);
    return bytes && (!s || (s->base == IN_FRAME && s->at < op->attrs.frame + bytes &&
                            op->attrs.frame < s->at + span_bytes(m, value)));
}

/* Is a's scratch apart from b's, and from b's operands and results? */
static bool has_own_scratch(Module *m, const Op *a, const Op *b)
{
    int64_t of_a = cuda_scratch_bytes(m, a), of_b = cuda_scratch_bytes(m, b);
    bool good = !of_a || !of_b || a->attrs.frame >= b->attrs.frame + of_b || b->attrs.frame >= a->attrs.frame + of_a;
    for (int i = 0; i < b->args.count; i++)
        good = good && !is_scratch_of(m, a, arg(b, i));
    for (int i = 0; i < b->results.count; i++)
        good = good && !is_scratch_of(m, a, b->results.at[i]);
    return good;
}

static bool are_independent(Module *m, const Op *a, const Op *b)
{
    return !overlaps_any(m, &a->results, &b->args) && !overlaps_any(m, &a->args, &b->results) &&
           !overlaps_any(m, &a->results, &b->results) && has_own_scratch(m, a, b) && has_own_scratch(m, b, a);
}

static int count_pointers(Module *m, const Op *op)
{
    return op->args.count + op->results.count + (cuda_scratch_bytes(m, op) > 0);
}

int find_cuda_group(Module *m, const Op *first, const Op *group[MAX_GROUP])
{
    CudaMember kind = member_kind(m, first);
    int count = 0, pointers = count_pointers(m, first);
    group[count++] = first;
    if (kind == NO_MEMBER)
        return count;
    for (const Op *op = next_of(first); op && count < MAX_GROUP && member_kind(m, op) == kind; op = next_of(op)) {
        bool fits = (pointers += count_pointers(m, op)) <= MAX_POINTERS &&
                    ranks_running(m, op) == ranks_running(m, first) &&
                    chunk_of_early(m, op) == chunk_of_early(m, first);
        for (int i = 0; i < count; i++)
            fits = fits && are_independent(m, group[i], op);
        if (!fits)
            break;
        group[count++] = op;
    }
    return count;
}

int cuda_scratch_stays(Module *m, const Op *op)
{
    int stays = 0, number = 0;
    if (member_kind(m, op) != MEMBER_OF_SUMS)
        return 0;
    for (const Op *next = op->next; next && number < MAX_GROUP; next = next->next) {
        stays++;
        if (is_view_only(next))
            continue;
        if (member_kind(m, next) != MEMBER_OF_SUMS)
            return stays - 1;
        number++;
    }
    return stays;
}

/* --- The text --------------------------------------------------------------------------------------- */

/* Functions for the blocks of one call, or of several that differ only in their pointers: one for each launch. */
typedef struct {
    const char *text, *name; /* the anonymous text */
    CudaLaunches launches;
} Member;

/* All calls of a group: their functions, and "const float *grad_wte", ...: all operands. */
typedef struct {
    Module *m;
    bool is_anonymous; /* as a row kernel */
    ShardOffsets *offsets;
    NameSpace names;
    int count, npointers;
    const Op *const *op;
    const Member **of;  /* by op */
    int *first_pointer; /* by op, and after the last */
    const char **declared, **named;
} LaunchGroup;

static char *member_text(const LaunchGroup *g, const Op *op, const char *name, bool anonymous, CudaLaunches *launches)
{
    Text text;
    open_text(&text);
    emit_cuda_member(g->m, row_kernel_of(g->m, op), op, name, anonymous, g->offsets, launches, text.out);
    return close_text(&g->m->arena, &text);
}

static const Member *find_member(const LaunchGroup *g, const Op *op, const char *name, Member member[], int *count,
                                 FILE *out)
{
    Module *m = g->m;
    Member *last = &member[*count];
    *last = (Member){ .text = NULL };
    last->text = member_text(g, op, "member", true, &last->launches);
    for (int i = 0; i < *count; i++)
        if (strcmp(member[i].text, last->text) == 0 && same_launches(&member[i].launches, &last->launches))
            return &member[i];
    last->name = arena_text(&m->arena, "%s_part%d", name, ++*count);
    fprintf(out, "%s\n", member_text(g, op, last->name, g->is_anonymous, &last->launches));
    return last;
}

static void add_pointer(LaunchGroup *g, const char *constant, const char *type, const char *name)
{
    g->named[g->npointers] = new_identifier(&g->names, name);
    g->declared[g->npointers] = arena_text(&g->m->arena, "%s%s *%s", constant, type, g->named[g->npointers]);
    g->npointers++;
}

static void name_pointers(LaunchGroup *g, const Op *op)
{
    for (int i = 0; i < op->args.count + op->results.count; i++) {
        bool is_result = i >= op->args.count;
        const Value *value = is_result ? op->results.at[i - op->args.count] : arg(op, i);
        add_pointer(g, is_result ? "" : "const ", element_type(value->type.dtype),
                    g->is_anonymous ? arena_text(&g->m->arena, "array%d", g->npointers)
                                    : c_identifier(g->m, readable_name(g->m, NULL, value), 40));
    }
    if (cuda_scratch_bytes(g->m, op))
        add_pointer(g, "", "float", "scratch");
}

static char *titles(Module *m, int count, const Op *const group[])
{
    const char **path = NEW_ARRAY(&m->arena, const char *, count);
    int paths = 0;
    for (int i = 0; i < count; i++) {
        const char *own = group[i]->path ? group[i]->path : group[i]->attrs.callee;
        if (!paths || strcmp(path[paths - 1], own) != 0)
            path[paths++] = own;
    }
    return wrapped_list(m, "/* together: ", paths, path, " */\n", 0);
}

/* Writes the functions of its members. */
static void open_group(LaunchGroup *g, const char *name, FILE *out)
{
    Member *member = NEW_ARRAY(&g->m->arena, Member, g->count + 1);
    int nmembers = 0;
    g->of = NEW_ARRAY(&g->m->arena, const Member *, g->count);
    g->first_pointer = NEW_ARRAY(&g->m->arena, int, g->count + 1);
    g->declared = NEW_ARRAY(&g->m->arena, const char *, MAX_POINTERS);
    g->named = NEW_ARRAY(&g->m->arena, const char *, MAX_POINTERS);
    for (int i = 0; i < g->count; i++) {
        g->of[i] = find_member(g, g->op[i], name, member, &nmembers, out);
        g->first_pointer[i] = g->npointers;
        name_pointers(g, g->op[i]);
    }
    g->first_pointer[g->count] = g->npointers;
}

/* Writes the kernel of launch `number` of all members with that many launches; false: none has. */
static bool write_launch(const LaunchGroup *g, const char *name, int number, CudaLaunches *launches, FILE *out)
{
    Module *m = g->m;
    int64_t blocks = 0, bytes = 0;
    Text cases;
    open_text(&cases);
    for (int i = 0; i < g->count; i++) {
        const CudaLaunch *launch = &g->of[i]->launches.at[number];
        if (number >= g->of[i]->launches.count)
            continue;
        char *block = blocks ? arena_text(&m->arena, "all - %" PRId64, blocks) : "all";
        char *head = arena_text(&m->arena, "%s(%s, ", launch->name, block);
        int first = g->first_pointer[i], pointers = g->first_pointer[i + 1] - first;
        blocks += launch->blocks;
        bytes += launch->bytes;
        FILL(cases.out, cuda_group_case_template, { "end", arena_text(&m->arena, "%" PRId64, blocks) },
             { "call", wrapped_list(m, head, pointers, g->named + first, ");", 15) });
    }
    char *text = close_text(&m->arena, &cases);
    if (blocks == 0)
        return false;
    FILL(out, cuda_group_template,
         { "head", kernel_head(m, name, cuda_bounds(m, BLOCK, 0), g->npointers, g->declared) }, { "cases", text });
    add_launch(launches, (CudaLaunch){ .name = name, .blocks = blocks, .threads = BLOCK, .bytes = bytes }, m);
    return true;
}

const char *emit_cuda_group(Module *m, int count, const Op *const group[], const char *name, bool anonymous,
                            ShardOffsets *offsets, CudaLaunches *launches, FILE *out)
{
    LaunchGroup g = { .m = m, .is_anonymous = anonymous, .offsets = offsets, .names = { .module = m } };
    g.count = count, g.op = group;
    open_group(&g, name, out);
    launches->count = 0;
    const char *own = name;
    for (int i = 0; write_launch(&g, own, i, launches, out); i++) {
        own = arena_text(&m->arena, "%s_%d", name, i + 2);
        fputc('\n', out);
    }
    return titles(m, count, group);
}
