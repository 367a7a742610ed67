/* cuda_group.c -- which kernels share a launch, and the kernel that hands out its blocks to them. */
#include "cuda_group.h"

#include "cuda_row.h"
#include "templates.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_POINTERS = 480 }; /* a launch takes 4 KiB of arguments */

/* --- Which ------------------------------------------------------------------------------------------ */

static bool may_join(Module *m, const Op *op)
{
    const Func *kernel = row_kernel_of(m, op);
    return kernel && is_cuda_member(m, kernel);
}

/* May two values lie in the same memory?  Of a called function's pointers only equal ones are known to be apart or
 * not: several may point into one tensor. */
static bool may_overlap(const Module *m, const Value *a, const Value *b)
{
    const Storage *x = a->storage, *y = b->storage;
    if (!x || !y)
        return true;
    if ((x->at < 0) != (y->at < 0) || (x->at < 0 && x->at != y->at))
        return false;
    int64_t from = x->at < 0 ? x->plus : x->at, other = y->at < 0 ? y->plus : y->at;
    return from < other + span_bytes(m, b) && other < from + span_bytes(m, a);
}

static bool overlaps_any(const Module *m, const Values *a, const Values *b)
{
    for (int i = 0; i < a->count; i++)
        for (int j = 0; j < b->count; j++)
            if (may_overlap(m, a->at[i], b->at[j]))
                return true;
    return false;
}

static bool are_independent(const Module *m, const Op *a, const Op *b)
{
    return !overlaps_any(m, &a->results, &b->args) && !overlaps_any(m, &a->args, &b->results) &&
           !overlaps_any(m, &a->results, &b->results);
}

int find_cuda_group(Module *m, const Op *first, const Op *group[MAX_GROUP])
{
    int count = 0, pointers = 0;
    group[count++] = first;
    if (!may_join(m, first))
        return count;
    pointers = first->args.count + first->results.count;
    for (const Op *op = first->next; op && count < MAX_GROUP && may_join(m, op); op = op->next) {
        bool fits = (pointers += op->args.count + op->results.count) <= MAX_POINTERS;
        for (int i = 0; i < count; i++)
            fits = fits && are_independent(m, group[i], op);
        if (!fits)
            break;
        group[count++] = op;
    }
    return count;
}

/* --- The text --------------------------------------------------------------------------------------- */

/* A function for the elements of one call, or of several that differ in nothing but their pointers. */
typedef struct {
    const char *text, *name; /* the text as it would be under another name */
    CudaLaunch launch;
} Member;

static char *member_text(Module *m, const Op *op, const char *name, CudaLaunch *launch)
{
    Text text;
    open_text(&text);
    emit_cuda_member(m, row_kernel_of(m, op), op, name, launch, text.out);
    return close_text(&m->arena, &text);
}

static const Member *find_member(Module *m, const Op *op, const char *name, Member member[], int *count, FILE *out)
{
    Member *last = &member[*count];
    *last = (Member){ .text = member_text(m, op, "member", &last->launch) };
    for (int i = 0; i < *count; i++)
        if (strcmp(member[i].text, last->text) == 0)
            return &member[i];
    last->name = arena_text(&m->arena, "%s_part%d", name, ++*count);
    fprintf(out, "%s\n", member_text(m, op, last->name, &last->launch));
    return last;
}

/* "const float *grad_wte", ...: all operands of all calls. */
static void name_pointers(Module *m, const Op *op, NameSpace *names, const char **declared, const char **named)
{
    for (int i = 0; i < op->args.count + op->results.count; i++) {
        bool is_result = i >= op->args.count;
        const Value *value = is_result ? op->results.at[i - op->args.count] : arg(op, i);
        named[i] = new_identifier(names, c_identifier(m, value->name, 40));
        declared[i] =
            arena_text(&m->arena, "%s%s *%s", is_result ? "" : "const ", element_type(value->type.dtype), named[i]);
    }
}

static char *titles(Module *m, int count, const Op *const group[])
{
    const char **path = NEW_ARRAY(&m->arena, const char *, count);
    for (int i = 0; i < count; i++)
        path[i] = group[i]->path ? group[i]->path : group[i]->attrs.callee;
    return wrapped_list(m, "/* together: ", count, path, " */", 0);
}

void emit_cuda_group(Module *m, int count, const Op *const group[], const char *name, CudaLaunches *launches, FILE *out)
{
    NameSpace names = { .module = m };
    Member *member = NEW_ARRAY(&m->arena, Member, count + 1);
    const char **declared = NEW_ARRAY(&m->arena, const char *, MAX_POINTERS),
               **named = NEW_ARRAY(&m->arena, const char *, MAX_POINTERS);
    int nmembers = 0, npointers = 0;
    int64_t blocks = 0;
    Text cases;
    open_text(&cases);
    fprintf(out, "%s\n", titles(m, count, group));
    for (int i = 0; i < count; i++) {
        const Op *op = group[i];
        const Member *of = find_member(m, op, name, member, &nmembers, out);
        int pointers = op->args.count + op->results.count;
        name_pointers(m, op, &names, declared + npointers, named + npointers);
        char *block = blocks ? arena_text(&m->arena, "all - %" PRId64, blocks) : "all";
        char *head = arena_text(&m->arena, "%s(%s, ", of->name, block);
        FILL(cases.out, cuda_group_case_template,
             { "end", arena_text(&m->arena, "%" PRId64, blocks + of->launch.blocks) },
             { "call", wrapped_list(m, head, pointers, named + npointers, ");", 15) });
        npointers += pointers;
        blocks += of->launch.blocks;
    }
    CudaLaunch launch = { .name = name, .blocks = blocks, .threads = BLOCK };
    FILL(out, cuda_group_template, { "head", kernel_head(m, name, cuda_bounds(m, BLOCK, 0), npointers, declared) },
         { "cases", close_text(&m->arena, &cases) });
    launches->count = 0;
    add_launch(launches, launch, m);
}
