#!/bin/sh
# embed.sh FILE.c... -- each file as a C string named after it: how templates get into mpc
for file; do
    printf 'static const char %s_template[] =\n' "$(basename "$file" .c)"
    sed 's/[\\"]/\\&/g; s/.*/    "&\\n"/' "$file" | tr -d '\r'
    echo '    ;'
done
