/* timeline.h -- the picture of a pipeline schedule: when each rank computes what, how long it idles, what it holds.
 *
 *   timeline.c       what is drawn: simulated times, memory over time, units
 *   timeline_text.c  as text
 *   timeline_page.c  as a page of HTML: head, figures, legend, table
 *   timeline_svg.c   the drawing in that page
 *   timeline_picture.c  as one SVG, which other pages show
 *   timeline_style.c their style sheets, and the script of the page
 *
 * Knows nothing of the compiled program: `mpc report` and the tests fill in a TimelinePicture. */
#ifndef MPC_TIMELINE_H
#define MPC_TIMELINE_H

#include "amount.h"
#include "schedule/schedule.h"

typedef struct {
    const PipelineSchedule *schedule;    /* order_messages() has run */
    const Costs *costs;                  /* seconds; forward, backward, weight by stage, message */
    const double *waits[N_ACTION_KINDS]; /* by stage: seconds of an action in which it waits for collectives within the
                                            stage; NULL: not known */
    const char *unit;                    /* "F of stage 1": of the costs, where they are not seconds; else NULL */
    const char *title;                   /* "gpt2.mdl, mesh pp=4,dp=2" */
    const char *axis;                    /* "pp" */
    const char *const *stage_text;       /* by stage: "layers 0 to 7, embedding"; may be NULL */
    double published_bubble;             /* by the published formula for this schedule with equal stages; < 0: none */
    const double *fixed_bytes;           /* by rank: weights, moments, gradients: held all the step */
    const double *activation_bytes; /* by stage: residuals that one micro-batch holds between F and its last backward
                                       action */
    double capacity_bytes;          /* a GPU's memory; 0: not given */
} TimelinePicture;

/* Rows are ranks, time goes to the right, in lines of `width` characters: F3, B3, W3 where all actions are wide enough,
 * else only the letters. */
void write_timeline_text(const TimelinePicture *p, int width, FILE *out);

/* One page that needs no other file, and no script but for marking what is under the mouse. */
void write_timeline_html(const TimelinePicture *p, FILE *out);

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
    double end;          /* of the last action: where the picture ends */
    double shortest;     /* action */
    int fullest;         /* the rank with the highest peak, and the first of these */
    double unit;         /* seconds */
    const char *unit_name;
} TimelineView;

TimelineView view_timeline(const TimelinePicture *p); /* the caller frees the arena */
double peak_of(const TimelineView *v, int rank);      /* bytes */
int chunk_of(const TimelineView *v, int stage);
double waits_of(const TimelineView *v, Action a); /* seconds for messages over other axes */
double tick_step(double span, int most); /* 1, 2 or 5 times a power of ten, of which `span` has `most` or fewer */

const char *stage_name(TimelineView *v, int stage);    /* "stage 0: layers 0 to 7" */
const char *stages_on_rank(TimelineView *v, int rank); /* of all its stages, "; " between them */
const char *counts_text(TimelineView *v);              /* "1f1b, 4 ranks along pp, 8 micro-batches, 4 stages" */

/* timeline_svg.c: how high everything is, and the drawing.  Names of ranks lie beside it, at these heights. */
typedef struct {
    double row, gap, strip, rows_at, strips_at, height; /* pixels: of a rank's actions, between ranks, of its memory */
} TimelineLayout;

enum {
    TIMELINE_WIDTH = 960, /* pixels, at least: labels are drawn where they fit in this, times the zoom */
    LOW_ROW = 30          /* rows lower than this have one line of text */
};

TimelineLayout lay_out_timeline(const TimelineView *v);
double memory_scale(const TimelineView *v); /* bytes at the top of a strip */
int finest_zoom(const TimelineView *v);     /* a power of 2 at which all labels fit, or the largest that there is */
void draw_timeline(TimelineView *v, FILE *out);
void write_escaped(const char *text, FILE *out);
void write_hues(const TimelineView *v, FILE *out); /* rules: the hue of each micro-batch */

/* timeline_style.c */
extern const char timeline_root[], timeline_drawing_style[];
extern const char *const timeline_style[]; /* of the page, in parts, the last one NULL */
extern const char timeline_script[];

#endif
