/* ports.h -- ports, the purposes of parameters and results; a part of ir.h, which includes it. */
#ifndef MPC_PORTS_H
#define MPC_PORTS_H

const char *port_word(PortKind kind);
bool port_is_named(PortKind kind);
bool port_is_state(PortKind kind);
bool port_is_fed(PortKind kind); /* a number that the trainer sets, or the step the model */
bool port_is_measured(PortKind kind);
bool returns_state(const Func *f); /* STEP, FINISH or BEGIN: its last results are its last parameters, anew */
bool same_port(Port a, Port b);
bool is_trained(const Module *m, Port port);   /* a param that is not frozen */
bool is_of_repeat(const Module *m, Port port); /* a param, or its state, of which each copy of a repeat has one */
Port port_named(const Module *m, Name name);   /* the param or input of that name, or PORT_NONE */
Value *param_for(const Func *f, PortKind kind, Name of); /* NULL: f takes none; of: NULL where it is not NAMED */
Value *param_with(const Func *f, Port port);

/* The parameters of a function by port, to ask for many of them while none is added or removed. */
typedef struct {
    int room;
    Value **at; /* open addressing; of equal ports, the first parameter */
} ParamIndex;
ParamIndex index_params(Arena *arena, const Func *f);
Value *indexed_param(const ParamIndex *index, Port port); /* as param_with() */
Port result_port(const Func *f, int i);
int result_at(const Func *f, Port port);         /* -1: f returns none */
Value *result_for(const Func *f, PortKind kind); /* of a port that is not NAMED; NULL: none */
void add_result(Module *m, Func *f, Value *value, Port port);
void insert_result(Module *m, Func *f, int at, Value *value); /* one without a port */
void remove_result(Func *f, int at);
int first_residual(const Func *f); /* the number of results before the residuals */
int first_state(const Func *f);    /* the index of the first state parameter */

/* The state of the step: it reads before[i] and returns after[i], the last of its parameters and results. */
typedef struct {
    int count;
    Value **before, **after;
} StepState;
StepState state_of(const Func *step);
int state_replaced(const Func *f, int result); /* the parameter that this result replaces; -1: none */

#endif
