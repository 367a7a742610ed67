/* model_outputs.c -- runs the program's outputs over all records, in their order, and writes a NumPy array of each.
 *
 * A call computes the records of one micro-batch.  Those of the last one that are missing are copies of its own, which
 * are not written.  The file has the records one after the other, as a checkpoint has tensors: each rank writes the
 * elements that it has, and of several ranks that have the same one does. */
#include "model_outputs.h"

#include "device.h"
#include "mesh/comm.h"
#include "store/output.h"
#include "store/tensors.h"

#include <stdlib.h>

enum { PART = 1 << 20 }; /* elements written at a time */

typedef struct {
    RtView view;    /* of what a call computes */
    int64_t record; /* elements of one */
    int64_t head;   /* bytes of the file before them */
    int bytes;      /* of an element there */
    char *path;
    RtOutput file;
} Written;

char *rt_model_output_path(const char *folder, const RtTensor *output)
{
    return rt_text("%s/%s.npy", folder, output->name);
}

/* The records of a call from number `begin` on, of which it returns how many are not copies. */
static int64_t records_of_call(const RtRun *run, int64_t begin, int64_t *record)
{
    const RtFunction *f = &run->rt.program->outputs;
    const int64_t call = f->micro * f->batch, left = rt_data_sequences(run->output_data) - begin;
    const int64_t own = left < call ? left : call;
    for (int64_t n = 0; n < call; n++)
        record[n] = begin + n % own;
    return own;
}

void rt_model_outputs_check_data(const RtRun *run)
{
    const RtFunction *f = &run->rt.program->outputs;
    const int64_t call = f->micro * f->batch, records = run->output_data ? rt_data_sequences(run->output_data) : 0;
    int64_t *record = rt_allocate(call, sizeof *record);
    for (int64_t begin = 0; begin < records; begin += call) {
        records_of_call(run, begin, record);
        const char *fault = rt_data_fault(run->output_data, record);
        if (fault)
            rt_fail("%s", fault);
    }
    free(record);
}

/* --- Files ----------------------------------------------------------------------------------- */

/* The first rank writes the head; the others join it. */
static Written begin_file(const RtRun *run, const RtTensor *output)
{
    const Rt *rt = &run->rt;
    Written w = { .view = rt_view_of_result(rt, &rt->program->outputs, output),
                  .record = 1,
                  .bytes = output->type == RT_BOOL ? 1 : 4,
                  .path = rt_model_output_path(run->options.outputs, output) };
    int64_t size[RT_MAX_RANK] = { rt_data_sequences(run->output_data) };
    for (int d = 1; d < output->rank; d++)
        w.record *= size[d] = output->size[d];
    char *head = rt_npy_head(output->type, output->rank, size, &w.head);
    if (rt->rank == 0) {
        w.file = rt_output_open(w.path, "--outputs");
        rt_output_reserve(&w.file, w.head + w.bytes * size[0] * w.record);
        rt_output_write(&w.file, head, w.head);
    }
    free(head);
    return w;
}

static Written *begin_files(RtRun *run)
{
    const RtFunction *f = &run->rt.program->outputs;
    Written *files = rt_allocate(f->nresults, sizeof *files);
    for (int i = 0; i < f->nresults; i++)
        files[i] = begin_file(run, &f->results[i]);
    rt_comm_barrier(&run->rt);
    for (int i = 0; i < f->nresults && run->rt.rank > 0; i++)
        files[i].file = rt_output_join(files[i].path, "--outputs");
    rt_comm_barrier(&run->rt); /* a rank that fails to write removes the file; all have opened it by now */
    return files;
}

/* All have written their parts: the first rank gives the files their names, or takes them away. */
static void end_files(RtRun *run, Written *files, bool is_whole)
{
    const RtFunction *f = &run->rt.program->outputs;
    const bool is_first = run->rt.rank == 0;
    for (int i = 0; i < f->nresults; i++) {
        rt_output_finish(&files[i].file);
        if (is_whole)
            rt_output_require(&files[i].file);
    }
    rt_comm_barrier(&run->rt);
    for (int i = 0; i < f->nresults; i++) {
        if (is_first && is_whole)
            rt_output_replace(&files[i].file);
        else if (is_first)
            rt_output_discard(&files[i].file);
        if (is_first && is_whole)
            rt_output_require(&files[i].file);
        rt_output_leave(&files[i].file);
        free(files[i].view.name);
        free(files[i].path);
    }
    free(files);
}

/* --- Calls ----------------------------------------------------------------------------------- */

static void write_elements(Written *w, int64_t at, const char *window, RtRange part, char *buffer)
{
    const void *values = rt_view_as_in_file(&w->view, window, part.own);
    if (!values) {
        rt_view_read(&w->view, window, part.own, part.count, buffer);
        values = buffer;
    }
    for (int64_t i = 0; i < part.count && w->bytes == 1; i++)
        buffer[i] = buffer[4 * i] | buffer[4 * i + 3]; /* 0 or 1, in either order of bytes */
    rt_output_seek(&w->file, at);
    rt_output_write(&w->file, values, w->bytes * part.count);
}

/* Writes this rank's part of the first `own` records of a call, which are from number `begin` on. */
static void write_call(const RtRun *run, Written *w, int64_t begin, int64_t own, char *buffer)
{
    if (!w->view.is_owner)
        return;
    char *window = rt_view_open(&run->rt, &w->view);
    RtRanges ranges = rt_ranges(&w->view);
    for (RtRange range; rt_next_range(&ranges, &range);) {
        const int64_t left = own * w->record - range.whole, count = left < range.count ? left : range.count;
        for (int64_t first = 0; first < count; first += PART) {
            const int64_t rest = count - first, at = begin * w->record + range.whole + first;
            const RtRange part = { range.own + first, range.whole + first, rest < PART ? rest : PART };
            write_elements(w, w->head + w->bytes * at, window, part, buffer);
        }
    }
    rt_view_close(&run->rt, &w->view, window, false);
}

static bool run_all(RtRun *run, Written *files)
{
    const RtFunction *f = &run->rt.program->outputs;
    const int64_t records = rt_data_sequences(run->output_data), call = f->micro * f->batch;
    int64_t *record = rt_allocate(call, sizeof *record), begin = 0;
    char *buffer = rt_allocate(PART, 4);
    for (; begin < records && !rt_has_signal(run); begin += call) {
        const int64_t own = records_of_call(run, begin, record);
        rt_data_fill(run->output_data, &run->rt, record);
        rt_set_scalars(run, &f->scalars);
        rt_run(&run->rt, f);
        for (int i = 0; i < f->nresults; i++)
            write_call(run, &files[i], begin, own, buffer);
    }
    free(buffer);
    free(record);
    return begin >= records;
}

void rt_model_outputs_write(RtRun *run)
{
    const RtFunction *f = &run->rt.program->outputs;
    const RtData *data = run->output_data;
    rt_finish_update(run);
    rt_exchange_average(run);
    Written *files = begin_files(run);
    bool is_whole = run_all(run, files);
    rt_exchange_average(run);
    is_whole &= !rt_is_interrupted(run) || !run->has_failure; /* a rank that could not read its part of the data? */
    end_files(run, files, is_whole);
    const RtCountText records = rt_count_text(rt_data_sequences(data), data->is_records ? "record" : "sequence");
    for (int i = 0; i < f->nresults && is_whole; i++)
        rt_note("wrote %s/%s.npy: %s of %s", run->options.outputs, f->results[i].name, records.text, data->option);
    if (!is_whole)
        rt_note("--outputs %s was interrupted, and has written nothing", run->options.outputs);
}
