/* gaps.h -- messages without their runs of zeros: rows of experts, of which most may be empty.
 *
 * A message is a row of units (workspace.h).  A map has a bit for each: is it anything but zeros?  Units of zeros are
 * not sent.  Both sides know the map, so no unit needs an address. */
#ifndef MPC_RUNTIME_GAPS_H
#define MPC_RUNTIME_GAPS_H

#include "mesh/workspace.h"

/* Fills in the map; returns the bytes of all units that are not zeros. */
int64_t rt_gaps_find(const char *message, int64_t bytes, unsigned char *map);

int64_t rt_gaps_filled(const unsigned char *map, int64_t bytes); /* the same, of a map that has arrived */

void rt_gaps_pack(const char *message, int64_t bytes, const unsigned char *map, char *packed); /* may be `message` */

/* Of a message whose packed units are at its end. */
void rt_gaps_unpack(char *message, int64_t bytes, const unsigned char *map);

#endif
