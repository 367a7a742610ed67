/* timeline.h -- the picture of a step: when each rank computes what, how long it idles, what it holds, and, on a
 * machine whose speed is known, when its messages are under way and when it waits for them.
 *
 *   timeline.c       what is drawn: simulated times, memory over time, units
 *   timeline_text.c  as text
 *   timeline_svg.c   the drawing
 *   timeline_bars.c  in the drawing, what is not an action of a pipeline: computation, messages, waits
 *   timeline_picture.c  around it, for pages of others: title, names, legend
 *
 * `mpc report --html` has a script that draws the same from a TimelinePicture as JSON (driver/page/timeline.js).  Knows
 * nothing of the compiled program: `mpc report` and the tests fill in a TimelinePicture. */
#ifndef MPC_TIMELINE_H
#define MPC_TIMELINE_H

#include "amount.h"
#include "schedule/schedule.h"

/* A rank computes, or a message is under way over the links, or the rank waits for it. */
typedef enum { DRAWN_WORK, DRAWN_MESSAGE, DRAWN_WAIT } TimelineBarKind;

typedef struct {
    TimelineBarKind kind;
    int lane;                   /* of a message or a wait; of work its class, which class_name names */
    double start, end, seconds; /* seconds: of what is in it, without gaps: it is as high as they are a share of it */
    const char *text;           /* "all_gather over tp, 4 ranks, 8.39 MB, h.mlp gpt2.mdl:33:12" */
} TimelineBar;

typedef struct {
    int count;
    TimelineBar *bar;
} TimelineBars;

/* All bars, where those that are too short are one.  The times of actions begin with them. */
typedef struct {
    const TimelineBars *before, *after;         /* by rank */
    const TimelineBars *action[N_ACTION_KINDS]; /* by stage; NULL: no pipeline */
} TimelineLevel;

enum { WORK_PHASES = 4, WORK_CLASSES = 2 * WORK_PHASES }; /* the second half: other kernels than products */

/* The step on a machine.  Its computation outside of actions of a pipeline, and its messages. */
typedef struct {
    const char *subject;     /* "a step of each of 64 ranks on h100" */
    const char *rate;        /* "518,545 tokens/s, MFU 37.6 % in bf16" */
    double before, seconds;  /* when the pipeline starts, and when the step ends; times of its actions begin with it */
    int nlanes;              /* of messages, below each rank */
    const char *const *lane; /* "dp+tp" */
    const char *phase_name[WORK_PHASES];  /* "forward"; "forward, once a step" beside a pipeline */
    const char *class_name[WORK_CLASSES]; /* of computation that is a bar; NULL: there is none of this class */
    TimelineLevel level[2];               /* coarse, and for high zooms a fine one */
    int nlevels;                          /* 1: the coarse one has as many bars as a page may have */
} TimelineStep;

typedef struct {
    const PipelineSchedule *schedule; /* order_messages() has run; NULL: no pipeline, and all ranks are as the first */
    const Costs *costs;               /* seconds; forward, backward, weight by stage, message */
    const TimelineStep *step;         /* NULL: what is beside the pipeline is not known; there is one */
    const char *unit;                 /* "F of stage 1": of the costs, where they are not seconds; else NULL */
    const char *title;                /* "gpt2.mdl, mesh pp=4,dp=2" */
    const char *axis;                 /* "pp" */
    const char *const *stage_text;    /* by stage: "layers 0 to 7, embedding"; may be NULL */
    double published_bubble;          /* by the published formula for this schedule with equal stages; < 0: none */
    const double *fixed_bytes;        /* by rank: weights, moments, gradients: held all the step */
    const double *activation_bytes;   /* by stage: residuals that one micro-batch holds between F and its last backward
                                         action */
    double capacity_bytes;            /* a GPU's memory; 0: not given */
} TimelinePicture;

/* Rows are ranks, time goes to the right, in lines of `width` characters: F3, B3, W3 where all actions are wide enough,
 * else only the letters. */
void write_timeline_text(const TimelinePicture *p, int width, FILE *out);

/* A picture for other pages: the drawing with the names of ranks and a legend, in light and dark colours. */
void write_timeline_svg(const TimelinePicture *p, FILE *out);

/* --- Shared by the writers ------------------------------------------------------------------------- */

typedef struct {
    const TimelinePicture *p;
    const PipelineSchedule *s;
    Arena arena;
    Timeline t;
    MemoryCurve *memory; /* by rank */
    double *idle;        /* by rank: share of the makespan; that of the busiest rank is the bubble */
    double end;          /* of the last action */
    double from, to;     /* what is drawn; 0 is when the pipeline starts */
    double shortest;     /* action */
    int fullest;         /* the rank with the highest peak, and the first of these */
    double unit;         /* seconds */
    const char *unit_name;
} TimelineView;

TimelineView view_timeline(const TimelinePicture *p); /* the caller frees the arena */
double peak_of(const TimelineView *v, int rank);      /* bytes */
int chunk_of(const TimelineView *v, int stage);
int row_count(const TimelineView *v);                       /* ranks that are drawn */
const char *row_name(TimelineView *v, int rank);            /* "rank 2"; "each rank" */
const char *duration_text(TimelineView *v, double seconds); /* of a step: "12.3 ms" */
double tick_step(double span, int most); /* 1, 2 or 5 times a power of ten, of which `span` has `most` or fewer */

const char *stage_name(TimelineView *v, int stage);    /* "stage 0: layers 0 to 7" */
const char *stages_on_rank(TimelineView *v, int rank); /* of all its stages, "; " between them */
const char *counts_text(TimelineView *v);              /* "1f1b, 4 ranks along pp, 8 micro-batches, 4 stages" */

/* timeline_svg.c: how high everything is, and the drawing.  Names of ranks lie beside it, at these heights. */
typedef struct {
    double row, lane, lanes; /* pixels: of a rank's actions, of each lane of its messages, of all of these */
    double gap, strip;       /* between ranks; of a rank's memory */
    double rows_at, strips_at, height;
} TimelineLayout;

enum {
    TIMELINE_WIDTH = 960, /* pixels, at least: labels are drawn where they fit in this */
    LOW_ROW = 30,         /* rows lower than this have one line of text */
    LOW_LANE = 9          /* lanes lower than this have no name beside them */
};

typedef struct {
    TimelineView *v;
    TimelineLayout layout;
    FILE *out;
} TimelineDrawing;

TimelineLayout lay_out_timeline(const TimelineView *v);
double row_at(const TimelineLayout *l, int rank);            /* pixels from the top */
double lane_at(const TimelineLayout *l, int rank, int lane); /* likewise */
double memory_scale(const TimelineView *v);                  /* bytes at the top of a strip */
double percent_at(const TimelineView *v, double at);         /* where that is drawn */
double in_units(const TimelineView *v, double at);           /* from the left end on */
void draw_timeline(TimelineView *v, FILE *out);
void write_escaped(const char *text, FILE *out);
void write_embedded(const char *const *line, FILE *out); /* a file of driver/page */
void write_hues(const TimelineView *v, FILE *out);       /* rules: the hue of each micro-batch */

/* timeline_bars.c */
void draw_action_bars(const TimelineDrawing *d, int rank, int i); /* of its i-th action */
void draw_bars_around(const TimelineDrawing *d, int rank);        /* before and after its actions */
double action_waits(const TimelineView *v, Action a);             /* seconds for messages over other axes */
double busy_until(const TimelineView *v, int rank, bool after);   /* when its own work before or after actions ends */

#endif
