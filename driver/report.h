/* report.h -- costs of a compiled program on each rank: `mpc report`, and the memory figures of mpc compile and
 * plan.json.
 *
 *   report.c           the command; computes the figures from the program
 *   report_experts.c   those of rows of experts
 *   report_pipeline.c  those of its pipeline: stages, and the picture of the schedule; report_pipeline_write.c: as text
 *                      and JSON
 *   report_time.c      the time of a step on a machine, as tables and as JSON
 *   report_step.c      the bars of a step on a machine, for its picture
 *   report_room.c      what is missing where memory does not suffice, and what helps
 *   report_lines.c     the figures by line of the model, and memory over the step
 *   report_page.c      all of that as a page: --html; report_timeline.c: its picture of the step
 *   memory_svg.c       memory over the step as a picture: --memory-svg
 *   report_text.c      the figures as tables
 *   report_json.c      the figures as JSON
 *   costs_json.c       the items of the step as JSON
 */
#ifndef MPC_REPORT_H
#define MPC_REPORT_H

#include "driver.h"
#include "json.h"
#include "remedies.h"
#include "timeline.h"

#include "codegen/host/totals.h"
#include "cost/step_time.h"
#include "filled.h"

/* Collectives of one kind over the same axes, of tensors of one class, with one cause; or what stages hand on. */
typedef struct {
    const Op *first;
    const char *name; /* "all_reduce", "send" */
    Axes axes;
    Name cause; /* "shard.dot", "pipeline.h" */
    Type from, to;
    TensorClass kind;
    double messages, tensors; /* per step; a message has the tensors of a bucket */
    double volume, sent;      /* bytes per step: see Traffic */
    double packed;            /* likewise: see packed_bytes() */
} TrafficRow;

/* Redundant work of several ranks, by op of the .mdl. */
typedef struct {
    const Op *op;
    Axes axes;
    double flops; /* per step, of one rank, that others do too */
} AlikeRow;

/* Rows of experts, of all layers that name their slots alike. */
typedef struct {
    const Op *fills; /* the first dispatch */
    Name slots;
    FilledRows filled;
    int64_t saved, passing;     /* bytes at the peak: for the backward pass, and others */
    double sent, sent_balanced; /* bytes per step of one rank: with all slots, and those that a balanced router fills */
} ExpertRow;

/* Sets of these, as bits, for one class of tensors. */
typedef struct {
    unsigned stored, computed, summed, sent;
} Precisions;

enum { PRODUCTS, LIBRARIES, ELEMENTWISE, N_WORKS };
extern const char *const work_name[N_WORKS];

/* A step on a machine. */
typedef struct {
    const Machine *machine;
    const char *name;
    StepTime time;
    double tokens,
        mfu; /* tokens: or records, a second, of all ranks; mfu: see FLOPS_CONVENTION; of the peak of `precision` */
    int precision;
} TimeReport;

/* A pipeline: its picture, and what that is made of. */
typedef struct {
    TimelinePicture picture;
    Costs costs;
    double *forward, *backward, *weight; /* by stage: FLOPs of one micro-batch; weight: 0, or not in backward */
    double message_bytes;                /* from a stage to the next one, of one micro-batch */
    double handed_on_bytes;              /* of these: what stages hand on as it has come, for later ones to read */
    const char **contents;               /* by stage: "h.0 to h.3, x" */
} PipelineReport;

typedef struct {
    Run *run;
    Module *m;
    Totals totals;
    Classes classes;
    Kinds *kinds;               /* of ranks: the stages of a pipeline */
    MemoryUse memory;           /* of the kind that needs most, and the first of these */
    MemoryUse *of_kind;         /* by kind */
    int64_t peak[N_ROLES];      /* bytes in use, at most, of that kind while each program runs */
    int64_t messages, products; /* bytes besides the arena, at most: see message_space, product_space */
    int64_t far, far_buffers;   /* bytes in another tier of memory, and for transfers from and to it */
    int64_t copied;             /* bytes of a copy of what outlives a step, on the kind that has most: see copies.c */
    double fetched, offloaded;  /* bytes of these transfers in a step */
    int64_t *messages_on;       /* by kind */
    int64_t ranks;
    int nrows, row_room;
    TrafficRow *row;
    int nalike, alike_room;
    AlikeRow *alike;
    int nexperts;
    ExpertRow *expert;
    double work[N_WORKS]; /* FLOPs per step of one rank */
    double alike_work;
    Precisions precision[N_CLASSES];
    int axis;                       /* of the stages of a pipeline; -1: there is none */
    PipelineReport *pipeline;       /* set by mpc report; NULL: there is none, or no picture of it */
    const char *no_picture;         /* why; NULL: there is no pipeline */
    const StepCost *cost;           /* with --costs or --machine */
    TimeReport *time;               /* with --machine */
    const TimelinePicture *picture; /* of the pipeline, or of the step on --machine; NULL: neither */
    const Remedies *remedies; /* where memory does not suffice; NULL: it does, or nothing says how much there is */
    const Remedies *faster;   /* where a step waits for what it offloads; NULL: it does not, or nothing is faster */
} Report;

Report make_report(Run *run, Module *m); /* the module has been through all passes */

void find_experts(Report *report, const Func *step); /* memory is known */

PipelineReport *report_pipeline(const Report *report, const char **why); /* NULL: none; see no_picture */
/* The arena, by what is in it at the peak. */
typedef struct {
    int64_t weights, gradients, optimizer, slots, rest; /* bytes; weights: f32 copies too; rest: what is idle, too */
} MemoryGroups;
MemoryGroups memory_groups(const MemoryUse *use);
const char *kind_name(const Report *report, int kind); /* "pp=2"; "all" */
int kind_of_peak(const Report *report);                /* whose memory is report->memory */

double stage_share(const PipelineReport *pipeline, int stage); /* of all FLOPs of a micro-batch */
void print_pipeline(const Report *report);                     /* report_pipeline_write.c */
void add_pipeline_json(const Report *report, cJSON *json);

const char *axes_list(Arena *arena, const Module *m, Axes axes); /* "dp+tp"; "" */

/* The name of a tensor for users: that in the .mdl, if there is one. */
const char *held_tensor_name(const Report *report, const Stretch *held);
const char *held_tensor_place(const Report *report, const Stretch *held); /* "gpt2.mdl:24:9", or "" */

int precision_of(const Module *m); /* what the products of the model run in */

/* The step on --machine; NULL after reporting. */
TimeReport *time_report(const Report *report);
const char *rate_text(const Report *report); /* "518,545 tokens/s, MFU 37.6 % in bf16" */
void print_time(const Report *report);
cJSON *time_json(const Report *report);
const char *seconds_text(Arena *arena, double seconds);   /* "1.234 s", "55.1 us" */
bool write_costs(const Report *report, const char *path); /* costs_json.c: --costs */

/* report_step.c: what is to be drawn of it, and a picture of that where there is none of its pipeline. */
const TimelineStep *timeline_step(const Report *report);
const TimelinePicture *step_picture(const Report *report);
const char *picture_title(const Report *report); /* "gpt2.mdl, mesh pp=4,dp=2" */

double memory_room(const Report *report); /* bytes that a rank may use: --memory, or the machine's; INFINITY: neither */
double bytes_needed(const Report *report); /* of the kind of rank that needs most: the arena and what is beside it */
const Remedies *report_remedies(const Report *report);
const Remedies *report_faster(const Report *report);
void print_remedies(const Report *report);
void print_faster(const Report *report);
cJSON *remedies_json(const Report *report);
cJSON *faster_json(const Report *report);

void print_report_tables(const Report *report);
void print_memory_table(const Report *report);
const char *workspace_text(const Report *report); /* "; beside it 33.55 MB for products", or "" */
static inline void add_text(cJSON *object, const char *key, const char *text)
{
    cJSON_AddStringToObject(object, key, text ? text : "");
}

cJSON *report_json(const Report *report);
cJSON *memory_json(const Report *report);
bool write_report_page(const Report *report, const char *path);
bool write_memory_svg(const Report *report, const char *path);
void add_lines_json(const Report *report, cJSON *json);    /* report_lines.c */
void add_timeline_json(const Report *report, cJSON *json); /* report_timeline.c */

#endif
