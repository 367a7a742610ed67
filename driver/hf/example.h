/* example.h -- the examples that come with mpc, and which of them computes what a folder's config.json says. */
#ifndef MPC_DRIVER_HF_EXAMPLE_H
#define MPC_DRIVER_HF_EXAMPLE_H

#include "driver.h"

struct cJSON;

typedef struct {
    const char *model, *map;
} Example;

/* The only example whose map fits the configuration in the file config_path.  False after reporting: none or several.
 */
bool find_example(Run *run, const struct cJSON *config, const char *config_path, Example *found);

/* After a map that does not fit: a note that names an example whose map does, if there is one. */
void note_example(Run *run, const struct cJSON *config, const char *config_path);

#endif
