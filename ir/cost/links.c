/* links.c -- messages that share links: see links.h. */
#include "links.h"

#include <math.h>

/* Are both of one communicator?  What goes to other tiers has one queue. */
static bool follow_each_other(const CostItem *a, const CostItem *b)
{
    return a->link == b->link && (a->axes == b->axes || a->link == TO_TIERS);
}

static bool goes(const Links *links, int i)
{
    for (int k = 0; k < i; k++)
        if (follow_each_other(links->flight[k].item, links->flight[i].item))
            return false;
    return true;
}

/* On each class of links: how many go. */
static void count_going(Links *links, int going[N_LINKS])
{
    for (int i = 0; i < links->count; i++)
        if (goes(links, i)) {
            Flight *flight = &links->flight[i];
            flight->start = isnan(flight->start) ? links->now : flight->start;
            going[flight->item->link]++;
        }
}

static void remove_flight(Links *links, int i)
{
    const Flight flight = links->flight[i];
    links->count--;
    for (int k = i; k < links->count; k++)
        links->flight[k] = links->flight[k + 1];
    links->arrived(links->context, flight.item, flight.start, links->now);
}

/* Until the next one arrives, which is returned, or until then: NULL. */
static const CostItem *run_to_arrival(Links *links, double until)
{
    int going[N_LINKS] = { 0 }, next = -1;
    double seconds = INFINITY;
    count_going(links, going);
    for (int i = 0; i < links->count; i++) {
        const double left = links->flight[i].left * going[links->flight[i].item->link];
        if (!isnan(links->flight[i].start) && (next < 0 || left < seconds))
            next = i, seconds = left;
    }
    const bool arrives =
        next >= 0 && !(links->now + seconds > until); /* of links without a speed: never, at INFINITY */
    const double gone = arrives ? seconds : until - links->now;
    for (int i = 0; i < links->count; i++)
        if (!isnan(links->flight[i].start))
            links->flight[i].left -= gone / going[links->flight[i].item->link];
    links->now += gone;
    if (!arrives)
        return NULL;
    const CostItem *item = links->flight[next].item;
    remove_flight(links, next);
    return item;
}

void run_links(Links *links, double until)
{
    while (links->now < until)
        run_to_arrival(links, until);
}

void run_until_arrived(Links *links, const CostItem *item)
{
    bool is_under_way = false;
    for (int i = 0; i < links->count; i++)
        is_under_way |= links->flight[i].item == item;
    while (is_under_way)
        is_under_way = run_to_arrival(links, INFINITY) != item;
}

void start_message(Links *links, const CostItem *item, double time)
{
    run_links(links, time);
    if (links->count == links->room) {
        Flight *grown = NEW_ARRAY(links->arena, Flight, links->room = links->room ? 2 * links->room : 16);
        for (int i = 0; i < links->count; i++)
            grown[i] = links->flight[i];
        links->flight = grown;
    }
    links->flight[links->count++] = (Flight){ item, NAN, item->seconds };
}

void put_off(Links *links, double seconds)
{
    links->now += seconds;
    for (int i = 0; i < links->count; i++)
        links->flight[i].start += seconds;
}
