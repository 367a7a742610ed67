/* report_time.c -- the time of a step on a machine: seconds, tokens, MFU, and what time goes to. */
#include "machine.h"
#include "report.h"
#include "tier.h"

#include <math.h>

/* --- The figures ------------------------------------------------------------------------------------- */

int precision_of(const Module *m)
{
    static const int of[N_Precision] = {
        [PRECISION_FP32] = F32, [PRECISION_BF16] = BF16, [PRECISION_FP16] = F16, [PRECISION_FP8] = E4M3
    };
    return of[m->train.precision];
}

TimeReport *time_report(const Report *r)
{
    const StepCost *cost = r->cost;
    TimeReport *t = NEW(&r->run->arena, TimeReport);
    const char *name = r->run->options->machine;
    if (cost->unscheduled) {
        run_failed(r->run, "--machine: no time of these stages: %s", cost->unscheduled);
        return NULL;
    }
    t->name = name;
    t->machine = read_machine(r->run, name);
    if (!t->machine)
        return NULL;
    if (!connects(t->machine, r->ranks)) {
        run_failed(r->run, "--machine %s: it does not say how %lld ranks are connected", name, (long long)r->ranks);
        return NULL;
    }
    if (r->far && isnan(machine_tier(t->machine, far_tier(r->m)))) {
        run_failed(r->run, "--machine %s: it has no line '%s', the rate of what the layout offloads", name,
                   Tier_words[far_tier(r->m)]);
        return NULL;
    }
    t->precision = precision_of(r->m);
    t->time = step_time(cost, t->machine, &r->run->arena);
    const double peak = machine_flops(t->machine, t->precision) * (double)r->ranks;
    t->tokens = (double)(r->totals.micro * r->totals.batch * r->totals.seq) / t->time.seconds;
    t->mfu = r->totals.flops / t->time.seconds / peak;
    return t;
}

/* --- Tables ------------------------------------------------------------------------------------------ */

const char *seconds_text(Arena *arena, double seconds)
{
    return seconds >= 1      ? arena_text(arena, "%.3f s", seconds)
           : seconds >= 1e-3 ? arena_text(arena, "%.3f ms", 1e3 * seconds)
                             : arena_text(arena, "%.1f us", 1e6 * seconds);
}

static void print_share(const Report *r, const char *name, double seconds)
{
    if (seconds > 0)
        printf("    %-27s %12s  %5.1f %%\n", name, seconds_text(&r->run->arena, seconds),
               100 * seconds / r->time->time.seconds);
}

static void print_messages(const Report *r)
{
    const StepTime *t = &r->time->time;
    Arena *arena = &r->run->arena;
    if (t->naxes)
        printf("    %-27s %8s %12s %12s\n", "messages over", "number", "take", "not hidden");
    for (int i = 0; i < t->naxes; i++)
        printf("    %-27s %8.0f %12s %12s\n", axes_list(arena, r->m, t->axes[i].axes), t->axes[i].messages,
               seconds_text(arena, t->axes[i].sent), seconds_text(arena, t->axes[i].exposed));
}

static void print_line(const Report *r, const LineTime *line, double seconds)
{
    const Op *op = line->op;
    printf("      %12s  %5.1f %%  %s %s\n", seconds_text(&r->run->arena, seconds),
           100 * seconds / r->time->time.seconds, op->path ? op->path : info(op)->name, op->where ? op->where : "");
}

static void print_lines(const Report *r)
{
    enum { LISTED = 10 };
    const StepTime *t = &r->time->time;
    printf("    longest lines of the model\n");
    for (int i = 0; i < t->nlines && i < LISTED; i++)
        print_line(r, &t->line[i], t->line[i].all);
}

/* The line with the longest waits for messages after `last` in that order; NULL: there is none. */
static const LineTime *next_waiting(const StepTime *t, const LineTime *last)
{
    const LineTime *next = NULL;
    for (int i = 0; i < t->nlines; i++) {
        const LineTime *line = &t->line[i];
        const double seconds = line->seconds[ITEM_MESSAGE], limit = last ? last->seconds[ITEM_MESSAGE] : INFINITY;
        const bool follows = seconds < limit || (seconds == limit && line > last);
        if (follows && seconds > 0 && (!next || seconds > next->seconds[ITEM_MESSAGE]))
            next = line;
    }
    return next;
}

/* What is not hidden is the sum of all lines; those below a thousandth of the step are not listed. */
static void print_waits(const Report *r)
{
    enum { LISTED = 6 };
    const double LEAST = 1e-3;
    const StepTime *t = &r->time->time;
    const LineTime *line = NULL;
    for (int i = 0; i < LISTED && (line = next_waiting(t, line)); i++) {
        if (line->seconds[ITEM_MESSAGE] < LEAST * t->seconds)
            break;
        if (i == 0)
            printf("    longest waits for messages\n");
        print_line(r, line, line->seconds[ITEM_MESSAGE]);
    }
}

static void print_room(const Report *r)
{
    Arena *arena = &r->run->arena;
    const double needed = bytes_needed(r), room = memory_room(r);
    printf("  memory: %s of %s%s\n", bytes_text(arena, needed), bytes_text(arena, room),
           needed > room ? ": does not fit" : "");
    if (is_said(r->time->machine, LINE_error))
        printf("  predictions by this machine's file were up to %.0f %% off\n",
               100 * machine_number(r->time->machine, LINE_error));
}

static void print_phases(const Report *r)
{
    const StepTime *t = &r->time->time;
    Arena *arena = &r->run->arena;
    const char *text = "";
    for (int i = 0; i < N_PHASES; i++)
        if (t->phase[i] > 0)
            text = arena_text(arena, "%s%s%s %s", text, *text ? ", " : "", phase_name[i],
                              seconds_text(arena, t->phase[i]));
    printf("  of these %s\n", text);
}

const char *rate_text(const Report *r)
{
    Arena *arena = &r->run->arena;
    return arena_text(arena, "%s %s/s, MFU %.1f %% in %s", grouped(arena, (int64_t)r->time->tokens),
                      is_fed_records(r->m) ? "records" : "tokens", 100 * r->time->mfu,
                      precision_name(r->time->precision));
}

void print_time(const Report *r)
{
    const TimeReport *report = r->time;
    Arena *arena = &r->run->arena;
    if (!report)
        return;
    const StepTime *t = &report->time;
    printf("time of a step on %s: %s, %s\n", report->name, seconds_text(arena, t->seconds), rate_text(r));
    if (r->kinds->count > 1)
        printf("  of %s, which ends last; the pipeline's bubble is %.1f %%\n", kind_name(r, t->kind), 100 * t->bubble);
    print_room(r);
    for (int i = 0; i < ITEM_WAIT; i++)
        print_share(r, i == ITEM_MESSAGE ? "messages, not hidden" : item_name[i], t->item[i]);
    if (r->kinds->count > 1)
        print_share(r, "waits for other stages", t->idle);
    print_phases(r);
    print_messages(r);
    print_lines(r);
    print_waits(r);
}

/* --- JSON --------------------------------------------------------------------------------------------- */

static void add_lines(const Report *r, cJSON *object)
{
    const StepTime *t = &r->time->time;
    cJSON *list = cJSON_AddArrayToObject(object, "lines");
    for (int i = 0; i < t->nlines; i++) {
        const LineTime *line = &t->line[i];
        cJSON *entry = add_json_entry(list);
        cJSON_AddStringToObject(entry, "op", line->op->path ? line->op->path : info(line->op)->name);
        cJSON_AddStringToObject(entry, "where", line->op->where ? line->op->where : "");
        for (int kind = 0; kind < ITEM_WAIT; kind++)
            if (line->seconds[kind] > 0)
                cJSON_AddNumberToObject(entry, item_name[kind], line->seconds[kind]);
    }
}

static void add_messages(const Report *r, cJSON *object)
{
    const StepTime *t = &r->time->time;
    cJSON *list = cJSON_AddArrayToObject(object, "axes");
    for (int i = 0; i < t->naxes; i++) {
        cJSON *entry = add_json_entry(list);
        cJSON_AddStringToObject(entry, "axes", axes_list(&r->run->arena, r->m, t->axes[i].axes));
        cJSON_AddNumberToObject(entry, "messages", t->axes[i].messages);
        cJSON_AddNumberToObject(entry, "seconds", t->axes[i].sent);
        cJSON_AddNumberToObject(entry, "exposed", t->axes[i].exposed);
    }
}

cJSON *time_json(const Report *r)
{
    const TimeReport *report = r->time;
    const StepTime *t = &report->time;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "machine", report->name);
    cJSON_AddNumberToObject(object, "seconds", t->seconds);
    cJSON_AddNumberToObject(object, is_fed_records(r->m) ? "records_per_second" : "tokens_per_second", report->tokens);
    cJSON_AddNumberToObject(object, "mfu", report->mfu);
    cJSON_AddStringToObject(object, "mfu_convention", FLOPS_CONVENTION);
    cJSON_AddStringToObject(object, "mfu_precision", precision_name(report->precision));
    if (is_said(report->machine, LINE_error))
        cJSON_AddNumberToObject(object, "error", machine_number(report->machine, LINE_error));
    cJSON_AddNumberToObject(object, "memory_bytes", bytes_needed(r));
    cJSON_AddNumberToObject(object, "memory_room_bytes", memory_room(r));
    cJSON_AddStringToObject(object, "rank_kind", kind_name(r, t->kind));
    cJSON *parts = cJSON_AddObjectToObject(object, "parts");
    for (int kind = 0; kind < ITEM_WAIT; kind++)
        cJSON_AddNumberToObject(parts, item_name[kind], t->item[kind]);
    cJSON_AddNumberToObject(parts, "idle", t->idle);
    cJSON *phases = cJSON_AddObjectToObject(object, "phases");
    for (int phase = 0; phase < N_PHASES; phase++)
        cJSON_AddNumberToObject(phases, phase_name[phase], t->phase[phase]);
    cJSON_AddNumberToObject(object, "bubble", t->bubble);
    add_messages(r, object);
    add_lines(r, object);
    return object;
}
