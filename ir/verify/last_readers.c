/* last_readers.c -- the last reader of each value of a function. */
#include "last_readers.h"
#include "flight.h"

static void note_reader(LastReaders *known, const Value *value, int number)
{
    if ((intptr_t)map_get(&known->last, value) <= number)
        map_put(&known->last, value, (void *)(intptr_t)(number + 1));
}

void find_last_readers(LastReaders *known, const Func *f)
{
    int number = 0;
    if (map_get(&known->seen, f))
        return;
    map_put(&known->seen, f, (void *)f);
    for (const Op *op = f->first; op; op = op->next, number++)
        for (int i = 0; i < op->args.count; i++) {
            note_reader(known, arg(op, i), number);
            const Op *start = arg(op, i)->type.in_flight ? arg(op, i)->def : NULL;
            const Value *sent = start ? arg(start, 0) : sent_before(f, arg(op, i));
            if (sent)
                note_reader(known, sent, number);
        }
    for (int i = 0; i < f->results.count; i++) {
        const Op *start = f->results.at[i]->type.in_flight ? f->results.at[i]->def : NULL;
        note_reader(known, f->results.at[i], number);
        if (start)
            note_reader(known, arg(start, 0), number);
    }
}

int last_reader(const LastReaders *known, const Value *value)
{
    return (int)(intptr_t)map_get(&known->last, value) - 1;
}
