/* trace_flow.c -- arrows between the rows of ranks: a message that one rank has sent, and where it has arrived.
 *
 * Messages of one collective between two ranks arrive in the order in which they are sent, so the n-th that a rank
 * sends in a step is the n-th that the other one receives. */
#include "trace.h"

#include <stdlib.h>

#define COMPARE(a, b, field)                                                                                           \
    if ((a)->field != (b)->field)                                                                                      \
    return (a)->field < (b)->field ? -1 : 1

static int by_connection(const TraceMessage *a, const TraceMessage *b)
{
    COMPARE(a, b, step);
    COMPARE(a, b, collective);
    COMPARE(a, b, from);
    COMPARE(a, b, to);
    return 0;
}

/* Those of a connection are neighbours: first as sent, then as received. */
static int compare(const void *left, const void *right)
{
    const TraceMessage *a = left, *b = right;
    const int connection = by_connection(a, b);
    if (connection)
        return connection;
    COMPARE(b, a, sends);
    COMPARE(a, b, order);
    return 0;
}

/* An arrow begins and ends in an event: the receiver may have begun to wait long before the message was sent. */
static void write_flow(const TraceMessage *sent, const TraceMessage *received, int64_t id, FILE *out)
{
    const double head = sent->begin > received->begin && sent->begin < received->end ? sent->begin : received->begin;
    fprintf(out,
            ",\n{\"name\":\"message\",\"cat\":\"flow\",\"ph\":\"s\",\"id\":%lld,\"ts\":%.3f,\"pid\":%d,\"tid\":%d}"
            ",\n{\"name\":\"message\",\"cat\":\"flow\",\"ph\":\"f\",\"bp\":\"e\",\"id\":%lld,\"ts\":%.3f,\"pid\":%d,"
            "\"tid\":%d}",
            (long long)id, sent->begin, sent->from, sent->row, (long long)id, head, received->to, received->row);
}

bool write_flows(Run *run, TraceMessages *messages, const bool *is_there, FILE *out)
{
    int64_t id = 0;
    if (messages->count)
        qsort(messages->at, (size_t)messages->count, sizeof *messages->at, compare);
    for (int64_t first = 0, next; first < messages->count; first = next) {
        const TraceMessage *m = &messages->at[first];
        int64_t sent = 0;
        for (next = first; next < messages->count && by_connection(m, &messages->at[next]) == 0; next++)
            sent += messages->at[next].sends;
        const int64_t received = next - first - sent;
        if (!is_there[m->from] || !is_there[m->to])
            continue;
        if (sent != received)
            return run_failed(run,
                              "in step %lld rank %d has sent %lld messages of collective %lld to rank %d, which has "
                              "received %lld: the files have been changed",
                              (long long)m->step, m->from, (long long)sent, (long long)m->collective, m->to,
                              (long long)received);
        for (int64_t i = 0; i < sent; i++)
            write_flow(&m[i], &m[sent + i], ++id, out);
    }
    return true;
}
