" Models of mpc and dumps of its IR.
autocmd BufNewFile,BufRead *.mdl setfiletype mdl
autocmd BufNewFile,BufRead *.mir setfiletype mir
