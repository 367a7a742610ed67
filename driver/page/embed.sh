#!/bin/sh
# embed.sh FILE... -- each file as a list of lines in C, since a string has a limit: how pages get into mpc.  page.css is
# page_css, which ends with NULL.
for file; do
    printf 'static const char *const %s[] = {\n' "$(basename "$file" | tr . _)"
    sed 's/[\\"]/\\&/g; s/.*/    "&\\n",/' "$file"
    printf '    NULL\n};\n'
done
