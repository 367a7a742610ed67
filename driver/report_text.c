/* report_text.c -- the figures of a report as tables. */
#include "report.h"

#include "tier.h"

#include <string.h>

static const char *bytes(const Report *r, double count) { return bytes_text(&r->run->arena, count); }
static const char *flops(const Report *r, double count) { return flops_text(&r->run->arena, count); }

/* --- Memory ----------------------------------------------------------------------------------------- */

static void print_class(const Report *r, const char *name, int64_t size)
{
    if (size)
        printf("    %-27s %12s  %5.1f %%\n", name, bytes(r, (double)size),
               100 * (double)size / (double)r->memory.arena);
}

/* A row for each kind of rank, and what the table below it is about. */
static void print_kinds(const Report *r)
{
    const char *axis = r->m->axis[r->kinds->axis];
    const int width = (int)strlen(axis) + 4;
    printf("    %-*s %12s %12s %12s %12s %12s %12s\n", width, "of", "weights", "gradients", "optimizer", "slots",
           "rest", "all");
    for (int kind = 0; kind < r->kinds->count; kind++) {
        const MemoryUse *use = &r->of_kind[kind];
        const MemoryGroups groups = memory_groups(use);
        printf("    %-*s %12s %12s %12s %12s %12s %12s\n", width, kind_name(r, kind), bytes(r, (double)groups.weights),
               bytes(r, (double)groups.gradients), bytes(r, (double)groups.optimizer), bytes(r, (double)groups.slots),
               bytes(r, (double)groups.rest), bytes(r, (double)use->arena));
    }
    printf("  of %s, which needs most:\n", kind_name(r, kind_of_peak(r)));
}

void print_memory_table(const Report *r)
{
    const MemoryUse *use = &r->memory;
    const char *place = use->op->where ? use->op->where : "";
    if (r->kinds->count > 1)
        print_kinds(r);
    for (int i = 0; i < N_CLASSES; i++)
        print_class(r, class_name[i], use->bytes[i]);
    print_class(r, "not in use at that time", use->unused);
    printf("    most is in use at %s%s%s%s, in @%s\n", use->op->path ? use->op->path : info(use->op)->name,
           *place ? " (" : "", place, *place ? ")" : "", use->func->name);
    if (r->far)
        printf("    on %s: %s; a step reads %s and writes %s\n", Tier_words[far_tier(r->m)], bytes(r, (double)r->far),
               bytes(r, r->fetched), bytes(r, r->offloaded));
    else if (far_tier(r->m))
        printf("    on %s: nothing, since %s\n", Tier_words[far_tier(r->m)],
               r->m->train.recompute == RECOMPUTE_AUTO ? "all that 'recompute auto' saves has room on the device"
                                                       : "no tensor is of that kind and beyond what stays");
}

static bool is_larger(const Report *r, const Stretch *a, const Stretch *b)
{
    return bytes_of_held(r->m, a, kind_of_peak(r)) > bytes_of_held(r->m, b, kind_of_peak(r));
}

/* The largest one that is not listed yet; ties are in the order of addresses. */
static const Stretch *next_largest(const Report *r, const Stretch *last)
{
    const MemoryUse *use = &r->memory;
    const Stretch *best = NULL;
    for (int i = 0; i < use->nheld; i++) {
        const Stretch *held = &use->held[i];
        bool comes_after = !last || is_larger(r, last, held) || (!is_larger(r, held, last) && held > last);
        if (comes_after && (!best || is_larger(r, held, best)))
            best = held;
    }
    return best;
}

static void print_largest(const Report *r)
{
    enum { LISTED = 12 };
    const Stretch *held = NULL;
    printf("  largest at that time\n");
    for (int i = 0; i < LISTED && (held = next_largest(r, held)); i++)
        printf("    %12s  %-15s %-24s %-40s %s\n", bytes(r, (double)bytes_of_held(r->m, held, kind_of_peak(r))),
               class_name[held->kind], held_tensor_name(r, held),
               held->value ? type_text(r->m, &held->value->type) : "scratch", held_tensor_place(r, held));
}

const char *workspace_text(const Report *r)
{
    const struct {
        int64_t bytes;
        const char *what;
    } parts[] = { { r->products, "products" }, { r->messages, "messages" }, { r->far_buffers, "transfers" } };
    const char *text = "";
    for (int i = 0; i < 3; i++)
        if (parts[i].bytes)
            text = arena_text(&r->run->arena, "%s%s %s for %s", text, *text ? " and" : "; beside it",
                              bytes(r, (double)parts[i].bytes), parts[i].what);
    return text;
}

static void print_memory(const Report *r)
{
    const MemoryUse *use = &r->memory;
    printf("memory of a rank: %s%s, planned to the byte%s\n", r->kinds->count > 1 ? "up to " : "",
           bytes(r, (double)use->arena), workspace_text(r));
    print_memory_table(r);
    print_largest(r);
    for (int i = 0; i < N_ROLES; i++)
        if (i != STEP && r->peak[i])
            printf("  %s %s in %s of it\n", role_name[i], i == OUTPUTS ? "run" : "runs", bytes(r, (double)r->peak[i]));
    printf("  up to %s more%s to save beside training; the trainer's --save-wait takes none\n",
           bytes(r, (double)r->copied), r->m->target->is_gpu ? ", of the host," : "");
    if (r->m->target->is_gpu && r->nrows > 0)
        printf("  NCCL takes memory that is in no plan: trainers measure it at start, for each group of ranks\n");
}

/* --- Communication --------------------------------------------------------------------------------- */

static double sent_over(const Report *r, Axes axes)
{
    double bytes = 0;
    for (int i = 0; i < r->nrows; i++)
        bytes += r->row[i].axes == axes ? r->row[i].sent : 0;
    return bytes;
}

/* ", and packs 1.20 GB": nothing, if all messages are contiguous. */
static const char *packed_over(const Report *r, Axes axes)
{
    double packed = 0;
    for (int i = 0; i < r->nrows; i++)
        packed += r->row[i].axes == axes ? r->row[i].packed : 0;
    return packed > 0 ? arena_text(&r->run->arena, ", and packs %s", bytes(r, packed)) : "";
}

static void print_traffic_row(const Report *r, const TrafficRow *row)
{
    const Op *op = row->first;
    printf("    %-14s %-15s %-5s %8.0f %8.0f %12s  %-20s %s%s%s\n", row->name, class_name[row->kind],
           dtype_name[row->from.dtype], row->messages, row->tensors, bytes(r, row->sent), row->cause,
           op->path ? op->path : "", op->where ? " " : "", op->where ? op->where : "");
    printf("    %14s %s -> %s\n", "", type_text(r->m, &row->from), type_text(r->m, &row->to));
}

static bool is_first_of_axes(const Report *r, int at)
{
    for (int i = 0; i < at; i++)
        if (r->row[i].axes == r->row[at].axes)
            return false;
    return true;
}

static void print_traffic(const Report *r)
{
    const Train *t = &r->m->train;
    printf("communication of a rank in a step\n");
    if (r->nrows == 0)
        printf("    none\n");
    if (t->zero_axes)
        printf("  zero %lld over %s: overlap_grads is %s, overlap_params is %s\n", (long long)t->zero,
               axes_list(&r->run->arena, r->m, t->zero_axes), t->overlap_grads ? "true" : "false",
               t->overlap_params ? "true" : "false");
    for (int i = 0; i < r->nrows; i++) {
        if (!is_first_of_axes(r, i))
            continue;
        Axes axes = r->row[i].axes;
        printf("  over %s (%s): sends %s%s\n", axes_list(&r->run->arena, r->m, axes),
               counted(&r->run->arena, count_ranks(r->m, axes), "rank"), bytes(r, sent_over(r, axes)),
               packed_over(r, axes));
        printf("    %-14s %-15s %-5s %8s %8s %12s  %-20s %s\n", "collective", "of", "dtype", "messages", "tensors",
               "sent", "cause", "first");
        for (int j = i; j < r->nrows; j++)
            if (r->row[j].axes == axes)
                print_traffic_row(r, &r->row[j]);
    }
}

/* --- Precision -------------------------------------------------------------------------------------- */

static const char *dtypes_text(Arena *arena, unsigned set)
{
    const char *text = "";
    for (int i = 0; i < N_PRECISIONS; i++)
        if (set >> i & 1)
            text = arena_text(arena, "%s%s%s", text, *text ? "," : "", precision_name(i));
    return *text ? text : "-";
}

static void print_precision(const Report *r)
{
    Arena *arena = &r->run->arena;
    printf("precision\n    %-15s %-14s %-14s %-14s %s\n", "", "stored", "computed in", "added up in", "sent");
    for (int i = 0; i < N_CLASSES; i++) {
        const Precisions *p = &r->precision[i];
        if (p->stored)
            printf("    %-15s %-14s %-14s %-14s %s\n", class_name[i], dtypes_text(arena, p->stored),
                   dtypes_text(arena, p->computed), dtypes_text(arena, p->summed), dtypes_text(arena, p->sent));
    }
}

/* --- Work -------------------------------------------------------------------------------------------- */

static void print_alike(const Report *r, double rank)
{
    enum { LISTED = 6 };
    const double LEAST = 5e-5; /* fraction of a rank's work, shown as 0.01 % */
    printf("    done by several ranks alike %7.2f %% of a rank's work\n", rank > 0 ? 100 * r->alike_work / rank : 0);
    for (int i = 0; i < r->nalike && i < LISTED; i++) {
        const AlikeRow *row = &r->alike[i];
        if (row->flops < LEAST * rank)
            break;
        printf("      %6.2f %%  over %-8s %s %s\n", 100 * row->flops / rank, axes_list(&r->run->arena, r->m, row->axes),
               row->op->path ? row->op->path : info(row->op)->name, row->op->where ? row->op->where : "");
    }
}

static void print_work(const Report *r)
{
    double rank = 0;
    for (int i = 0; i < N_WORKS; i++)
        rank += r->work[i];
    printf("work of a rank in a step%s: %s\n", r->axis < 0 ? "" : ", on average over the stages", flops(r, rank));
    for (int i = 0; i < N_WORKS; i++)
        printf("    %-27s %14s\n", work_name[i], flops(r, r->work[i]));
    printf("    all ranks together do %.2f times the model's %s (%s)\n",
           r->totals.flops > 0 ? rank * (double)r->ranks / r->totals.flops : 0, flops(r, r->totals.flops),
           FLOPS_CONVENTION);
    print_alike(r, rank);
}

/* --- Experts ----------------------------------------------------------------------------------------- */

static void print_experts(const Report *r)
{
    for (int i = 0; i < r->nexperts; i++) {
        const ExpertRow *row = &r->expert[i];
        const FilledRows *f = &row->filled;
        const Op *op = row->fills;
        printf("%s    %s%s%s\n", i ? "" : "experts\n", op->path ? op->path : info(op)->name, op->where ? " " : "",
               op->where ? op->where : "");
        printf("      a queue has %lld choices of %lld experts: %.4g rows of each if balanced, %lld planned",
               (long long)f->choices, (long long)f->experts, (double)f->choices / (double)f->experts,
               (long long)(f->slots * f->rounds));
        if (f->rounds > 1)
            printf(", in %s", counted(&r->run->arena, f->rounds, "round"));
        printf("\n      rows at the memory's peak: %s saved for the backward pass, %s others\n",
               bytes(r, (double)row->saved), bytes(r, (double)row->passing));
        if (row->sent > 0)
            printf("      rows sent: %s, of which %s have a token if balanced\n", bytes(r, row->sent),
                   bytes(r, row->sent_balanced));
    }
}

/* --- The whole report ---------------------------------------------------------------------------------- */

void print_report_tables(const Report *r)
{
    const Module *m = r->m;
    Arena *arena = &r->run->arena;
    printf("%s: model %s, %s, on %s%s", shown_path(r->run), m->name, counted(arena, r->totals.parameters, "parameter"),
           counted(arena, r->ranks, "rank"),
           r->ranks == 1         ? ""
           : r->kinds->count > 1 ? arena_text(arena, " of %d kinds:", r->kinds->count)
                                 : ", all of one kind:");
    for (int i = 0; i < m->naxes; i++)
        printf("%s %s=%lld", i ? "," : "", m->axis[i], (long long)m->axis_size[i]);
    printf("\na step: %s\n", step_text(m, r->totals));
    print_time(r);
    print_memory(r);
    print_remedies(r);
    print_faster(r);
    print_traffic(r);
    print_precision(r);
    print_work(r);
    print_experts(r);
    print_pipeline(r);
}
