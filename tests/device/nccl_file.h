/* nccl_file.h -- messages as files. */
#ifndef MPC_TESTS_NCCL_FILE_H
#define MPC_TESTS_NCCL_FILE_H

#include "device.h"

#include <stdio.h>

/* The file exists when all of it is there. */
static void give(const char *path, const char *data, size_t bytes)
{
    char aside[300];
    snprintf(aside, sizeof aside, "%s.aside", path);
    FILE *file = fopen(aside, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0 || rename(aside, path) != 0)
        emulated_fault("NCCL cannot write %s", path);
}

/* The whole file, or NULL if it does not exist yet. */
static char *taken(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*bytes + 1);
    if (fread(data, 1, *bytes, file) != *bytes)
        emulated_fault("NCCL cannot read %s", path);
    fclose(file);
    return data;
}

#endif
