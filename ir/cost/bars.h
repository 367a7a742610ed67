/* bars.h -- the work of a rank, as bars: its computation, its messages while they are under way, and its waits for
 * them.
 *
 * Neighbouring bars of one lane that are shorter than `resolution` together become one, which reaches to the next bar
 * and keeps the seconds of all: there are never more bars than a picture can show. */
#ifndef MPC_BARS_H
#define MPC_BARS_H

#include "step_cost.h"

typedef enum { BAR_COMPUTES, BAR_UNDER_WAY, BAR_WAITS, N_BAR_KINDS } BarKind;

typedef struct {
    BarKind kind;
    const CostItem *item; /* the longest of those in it; of a wait, the message */
    double start, end;
    double seconds, longest; /* of all in it, without gaps; and of `item` */
    int64_t count;
} Bar;

typedef struct {
    int count, room;
    Bar *bar;
    double resolution;
    int *last; /* by lane: 1 + the last bar; 0: none */
    int turn;  /* the first bar of the turn that is recorded: others are added to none from before it */
    Arena *arena;
} Bars;

Bars new_bars(Arena *arena, double resolution);

/* Does nothing where it takes no time. */
void add_bar(Bars *bars, BarKind kind, const CostItem *item, double start, double end);

/* A turn of a loop, that is to be repeated: what begin_turn() returns goes to repeat_turn(), which appends that all
 * again, so often, each so many seconds after the one before. */
int begin_turn(Bars *bars);
void repeat_turn(Bars *bars, int begin, int64_t times, double seconds);

/* At the end: those which turns have kept apart are one, too. */
void join_bars(Bars *bars);

#endif
