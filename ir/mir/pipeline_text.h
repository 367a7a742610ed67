/* pipeline_text.h -- the pipeline of a module as text, for people: which copies and weights each rank has, and what is
 * sent.
 *
 *   pipeline pp {
 *     schedule 1f1b, micros 8
 *     pp=0 stage 0 (h 0..5) params %wte, %wpe
 *     pp=1 stage 1 (h 6..11) params %head
 *     transfer F %x : bf16[batch:4, seq:16] 0 -> 1
 *     transfer B %d.x : bf16[batch:4, seq:16] 1 -> 0
 *   }
 *
 * It follows from the loops and types of the module, once passes/layout/pipeline.c has cut a micro-batch.
 */
#ifndef MPC_PIPELINE_TEXT_H
#define MPC_PIPELINE_TEXT_H

#include "ir.h"

char *pipeline_text(Module *m); /* to be freed with free(); NULL: no micro-batch is cut */

/* Of a verified module: is the section that has been read, if there was one, that of the module?  false: after
 * reporting. */
bool verify_pipeline_text(Module *m);

#endif
