/* habits.c -- what options of other trainers are called here: see habits.h. */
#include "habits.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const struct {
    const char *theirs, *ours; /* theirs with '_' for '-' */
} habits[] = {
    { "lr", "--set train.optimizer.lr=..." },
    { "learning_rate", "--set train.optimizer.lr=..." },
    { "weight_decay", "--set train.optimizer.weight_decay=..." },
    { "beta1", "--set train.optimizer.beta1=..." },
    { "beta2", "--set train.optimizer.beta2=..." },
    { "momentum", "--set train.optimizer.momentum=..." },
    { "eps", "--set train.optimizer.eps=..." },
    { "batch", "--set train.batch=..." },
    { "batch_size", "--set train.batch=..." },
    { "global_batch_size", "--set train.batch=..." },
    { "microbatch", "--set train.microbatch=..." },
    { "micro_batch_size", "--set train.microbatch=..." },
    { "gradient_accumulation_steps", "--set train.microbatch=..." },
    { "warmup", "--set train.schedule.warmup=..." },
    { "warmup_steps", "--set train.schedule.warmup=..." },
    { "clip_grad", "--set train.clip=..." },
    { "grad_clip", "--set train.clip=..." },
    { "max_grad_norm", "--set train.clip=..." },
    { "precision", "--set train.precision=..." },
    { "dtype", "--set train.precision=..." },
    { "bf16", "--set train.precision=bf16" },
    { "fp16", "--set train.precision=fp16" },
    { "epochs", "--steps" },
    { "num_epochs", "--steps" },
    { "max_steps", "--steps" },
    { "max_iters", "--steps" },
    { "train_iters", "--steps" },
    { "checkpoint", "--load" },
    { "ckpt", "--load" },
    { "output_dir", "--save" },
    { "out_dir", "--save" },
    { "save_steps", "--save-every" },
    { "save_interval", "--save-every" },
    { "eval_steps", "--eval-every" },
    { "eval_interval", "--eval-every" },
    { "log_every", "--print-every" },
    { "log_interval", "--print-every" },
    { "logging_steps", "--print-every" },
    { "train_data", "--data" },
    { "dataset", "--data" },
    { "val_data", "--eval-data" },
    { "valid_data", "--eval-data" },
};

static bool is_same(const char *name, const char *theirs)
{
    for (; *name && (*name == '-' ? '_' : *name) == *theirs; name++)
        theirs++;
    return !*name && !*theirs;
}

const char *rt_habit(const char *name)
{
    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
        if (is_same(name, habits[i].theirs))
            return habits[i].ours;
    return NULL;
}
