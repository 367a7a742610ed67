/* report_room.c -- says whether a rank's memory suffices, and if not, what makes the peak, how much is missing, and
 * what helps. */
#include "report.h"

#include "trial.h"

#include <math.h>
#include <stdlib.h>

double memory_room(const Report *r)
{
    const char *said = r->run->options->memory;
    return said ? strtod(said, NULL) : r->time ? machine_memory(r->time->machine) : INFINITY;
}

double bytes_needed(const Report *r)
{
    double most = 0;
    for (int kind = 0; kind < r->kinds->count; kind++) {
        const double own = (double)(r->of_kind[kind].arena + r->messages_on[kind] + r->products + r->far_buffers);
        most = own > most ? own : most;
    }
    return most;
}

static RemedyQuestion question_of(const Report *r)
{
    return (RemedyQuestion){ .options = r->run->options,
                             .room = memory_room(r),
                             .machine = r->time ? r->time->machine : NULL };
}

const Remedies *report_remedies(const Report *r)
{
    if (bytes_needed(r) <= memory_room(r) || r->run->options->no_remedies)
        return NULL;
    Remedies *found = NEW(&r->run->arena, Remedies);
    *found = find_remedies(r->run, question_of(r));
    return found;
}

const Remedies *report_faster(const Report *r)
{
    if (!r->time || !r->far || r->remedies || r->run->options->no_remedies)
        return NULL;
    Remedies *found = NEW(&r->run->arena, Remedies);
    *found = find_faster(r, question_of(r));
    return found->count ? found : NULL;
}

/* --- What makes the peak -------------------------------------------------------------------------------- */

static TensorClass largest_class(const MemoryUse *use)
{
    TensorClass largest = 0;
    for (TensorClass kind = 0; kind < N_CLASSES; kind++)
        largest = use->bytes[kind] > use->bytes[largest] ? kind : largest;
    return largest;
}

/* Of a class, at the peak, and of a line of the model; NULL: none is. */
static const Stretch *largest_of(const Report *r, TensorClass kind)
{
    const MemoryUse *use = &r->memory;
    const int rank = kind_of_peak(r);
    const Stretch *largest = NULL;
    for (int i = 0; i < use->nheld; i++) {
        const Stretch *held = &use->held[i];
        if (held->kind == kind && *held_tensor_place(r, held) &&
            (!largest || bytes_of_held(r->m, held, rank) > bytes_of_held(r->m, largest, rank)))
            largest = held;
    }
    return largest;
}

/* --- Tables --------------------------------------------------------------------------------------------- */

/* "logits (llama.mdl:60:14)" */
static const char *placed(Arena *arena, const char *name, const char *where)
{
    return where && *where ? arena_text(arena, "%s (%s)", name, where) : name;
}

static void print_shortage(const Report *r)
{
    Arena *arena = &r->run->arena;
    const MemoryUse *use = &r->memory;
    const TensorClass kind = largest_class(use);
    const Stretch *held = largest_of(r, kind);
    const double room = memory_room(r), needed = bytes_needed(r);
    printf("does not fit: %s of %s, %s are missing\n", bytes_text(arena, needed), bytes_text(arena, room),
           bytes_text(arena, needed - room));
    printf("  most is in use at %s: %s %s",
           placed(arena, use->op->path ? use->op->path : info(use->op)->name, use->op->where),
           bytes_text(arena, (double)use->bytes[kind]), class_name[kind]);
    if (held)
        printf(", the largest %s", placed(arena, held_tensor_name(r, held), held_tensor_place(r, held)));
    puts("");
}

/* What it costs is time, or where no machine says that, work and bytes that are moved. */
static void print_remedy(const Report *r, const Remedy *remedy)
{
    Arena *arena = &r->run->arena;
    printf("    %12s", bytes_text(arena, remedy->bytes));
    if (r->time)
        printf(" %12s", isnan(remedy->seconds) ? "-" : seconds_text(arena, remedy->seconds));
    else
        printf(" %14s %12s", flops_text(arena, remedy->work), bytes_text(arena, remedy->moved));
    printf("  %s%s\n", remedy->options, remedy->rounds ? " (rounds gradients)" : "");
}

static void print_title(const Report *r, const char *title)
{
    if (r->time)
        printf("    %12s %12s  %s\n", "memory", "step", title);
    else
        printf("    %12s %14s %12s  %s\n", "memory", "work", "moved", title);
}

void print_remedies(const Report *r)
{
    const Remedies *some = r->remedies;
    if (!some)
        return;
    print_shortage(r);
    if (some->count)
        print_title(r, some->at[0].fits ? "with one of these it fits" : "each of these helps, none is enough");
    for (int i = 0; i < some->count; i++)
        print_remedy(r, &some->at[i]);
    if (some->together.options) {
        print_title(r, !some->together.fits              ? "the least without more ranks"
                       : some->count && some->at[0].fits ? "several are faster"
                                                         : "together they are enough");
        print_remedy(r, &some->together);
    } else if (!some->count) {
        puts("  no option helps: more ranks are needed");
    }
}

void print_faster(const Report *r)
{
    if (!r->faster)
        return;
    printf("the step waits for offloaded tensors\n");
    print_title(r, r->faster->count == 1 ? "this is faster" : "these are faster");
    for (int i = 0; i < r->faster->count; i++)
        print_remedy(r, &r->faster->at[i]);
}

/* --- JSON ----------------------------------------------------------------------------------------------- */

static void add_remedy(cJSON *entry, const Remedy *remedy)
{
    cJSON_AddStringToObject(entry, "options", remedy->options);
    cJSON_AddNumberToObject(entry, "memory_bytes", remedy->bytes);
    if (!isnan(remedy->seconds))
        cJSON_AddNumberToObject(entry, "seconds", remedy->seconds);
    cJSON_AddNumberToObject(entry, "flops", remedy->work);
    cJSON_AddNumberToObject(entry, "moved_bytes", remedy->moved);
    cJSON_AddBoolToObject(entry, "fits", remedy->fits);
    cJSON_AddBoolToObject(entry, "rounds", remedy->rounds);
}

static void add_list(cJSON *list, const Remedies *some)
{
    for (int i = 0; i < some->count; i++)
        add_remedy(add_json_entry(list), &some->at[i]);
}

cJSON *remedies_json(const Report *r)
{
    const Remedies *some = r->remedies;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "room_bytes", memory_room(r));
    cJSON_AddNumberToObject(object, "needed_bytes", bytes_needed(r));
    add_list(cJSON_AddArrayToObject(object, "remedies"), some);
    if (some->together.options)
        add_remedy(cJSON_AddObjectToObject(object, "together"), &some->together);
    return object;
}

cJSON *faster_json(const Report *r)
{
    cJSON *list = cJSON_CreateArray();
    add_list(list, r->faster);
    return list;
}
