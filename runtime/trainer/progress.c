/* progress.c -- progress lines on the terminal. */
#include "log.h"
#include "state.h"

#include <math.h>
#include <stdio.h>

#include <unistd.h>

static void print_left(double seconds)
{
    long whole = (long)seconds;
    if (whole >= 3600)
        printf("  %ld h %02ld min left", whole / 3600, whole / 60 % 60);
    else if (whole >= 60)
        printf("  %ld min %02ld s left", whole / 60, whole % 60);
    else if (seconds > 0)
        printf("  %ld s left", whole);
}

static void print_rate(double per_s, const char *unit)
{
    if (per_s >= 1e6)
        printf("  %.2fM %s/s", per_s / 1e6, unit);
    else if (per_s >= 1e4)
        printf("  %.1fk %s/s", per_s / 1e3, unit);
    else
        printf("  %.0f %s/s", per_s, unit);
}

/* The most loaded of all experts, and the mean of all layers' shares. */
static void print_experts(RtLayers loads, RtLayers dropped)
{
    double most = 0, share = 0;
    for (int i = 0; i < loads.count; i++)
        most = fmax(most, (double)loads.at[i]);
    for (int i = 0; i < dropped.count; i++)
        share += (double)dropped.at[i] / dropped.count;
    if (loads.count)
        printf("  load %.2f", most);
    if (dropped.count)
        printf("  dropped %.1f %%", 100 * share);
}

/* A loss of 0 may be that of a mean without labels. */
static void print_lack(RtLabels labels)
{
    int without = 0;
    for (int i = 0; i < labels.count; i++)
        without += labels.at[i] == 0;
    if (without && without == labels.count)
        printf(" (no label counts)");
    else if (without)
        printf(" (no label counts in %d of %d means)", without, labels.count);
}

void rt_progress_print_evaluation(const RtEvaluation *evaluation)
{
    printf("eval loss %.6f", evaluation->loss);
    print_lack(evaluation->labels);
}

void rt_progress_print(const RtStepReport *report, bool keep, bool is_ending)
{
    bool is_terminal = report->ranks == 1 && isatty(STDOUT_FILENO); /* launchers may give each rank a terminal */
    if (!is_terminal && (!keep || is_ending))
        return;
    if (is_terminal)
        printf("\r");
    printf("step %lld/%lld  loss %.6f", (long long)report->step, (long long)report->steps, report->loss);
    print_lack(report->labels);
    if (report->evaluation.is_whole) {
        printf("  ");
        rt_progress_print_evaluation(&report->evaluation);
    }
    if (!isnan(report->grad_norm))
        printf("  norm %.4g", report->grad_norm);
    if (report->is_skipped)
        printf(" (skipped)");
    print_experts(report->expert_load, report->dropped);
    printf("  lr %.3g", report->lr);
    print_rate(report->tokens_per_s, report->takes_records ? "records" : "tokens");
    if (isfinite(report->mfu))
        printf("  mfu %.1f %%", 100 * report->mfu);
    printf("  %s", rt_bytes_text((double)report->bytes).text);
    print_left(report->left_s);
    printf("%s%s", is_terminal ? "\033[K" : "", keep ? "\n" : "");
    fflush(stdout);
}
