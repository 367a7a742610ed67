/* library.c -- the kernels of library.h, for one level of vectors: what -march says. */
#define RT_KERNEL

#include "library.h"

#include "attend.h"
#include "attend_bias.h"
#include "attend_grad.h"
#include "cumulative.h"
#include "experts.h"
#include "gather.h"
#include "probe.h"
#include "rope.h"
