/* habits.h -- what options of other trainers are called here. */
#ifndef MPC_RUNTIME_HABITS_H
#define MPC_RUNTIME_HABITS_H

/* An option of trainers (--steps), or a setting of the model for mpc's --set (--set train.batch=...); NULL: none. */
const char *rt_habit(const char *name);

#endif
