/* published.c -- the bubbles of schedules as their papers give them. */
#include "schedule.h"

#include <string.h>

/* The idle share of `idle` units beside `work` of a rank. */
static double share(double idle, double work) { return idle / (work + idle); }

/* One micro-batch at a time is GPipe with one: of p ranks, p - 1 wait. */
static double naive(double p, double v, double m) { return share(p - 1, 1); }

/* Huang et al., arXiv 1811.06965, section 2.3: (K-1)/(M+K-1).  With chunks, breadth first: Lamy-Poirier, arXiv
 * 2211.05953: idle for (p-1)/(v m) of the ideal time, if there are p micro-batches or more. */
static double gpipe(double p, double v, double m) { return v == 1 || m >= p ? share(p - 1, v * m) : -1; }

/* Narayanan et al., arXiv 2104.04473, section 2.2.1: idle for (p-1)/m of the ideal time, as GPipe. */
static double one_f_one_b(double p, double v, double m) { return v == 1 ? share(p - 1, m) : -1; }

/* Section 2.2.2 there: (p-1)/(v m) of the ideal time. */
static double interleaved(double p, double v, double m) { return share(p - 1, v * m); }

/* Qi et al., arXiv 2401.10241, table 2: idle for (p-1)(F+B-W) of m(F+B+W) in work.  The paper has m >= p. */
static double zb_h1(double p, double v, double m) { return v == 1 && m >= p ? share(p - 1, 3 * m) : -1; }

/* V-ZB of Qi et al., arXiv 2405.15362: none, once the pipeline is full.  Our simulation has it full from 2p - 1
 * micro-batches on (see zb_v() in generate.c); the paper gives no formula for fewer. */
static double zb_v(double p, double v, double m) { return v == 2 && m >= 2 * p - 1 ? 0 : -1; }

double published_bubble(const char *schedule, int ranks, int chunks, int micros)
{
    static const struct {
        const char *name;
        double (*bubble)(double p, double v, double m);
    } rows[] = { { "naive", naive }, { "gpipe", gpipe }, { "1f1b", one_f_one_b }, { "interleaved", interleaved },
                 { "zb-h1", zb_h1 }, { "zb-v", zb_v } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, schedule) == 0)
            return rows[i].bubble(ranks, chunks, micros);
    return -1;
}
