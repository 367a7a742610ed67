#!/bin/sh
# embed.sh FILE... -- each file as a C string named after it: how templates and optimizers get into mpc
for file; do
    printf 'static const char %s_template[] =\n' "$(basename "${file%.*}")"
    sed 's/[\\"]/\\&/g; s/.*/    "&\\n"/' "$file" | tr -d '\r'
    echo '    ;'
done
