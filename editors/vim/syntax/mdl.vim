" Models of mpc.  The words are those of docs/language.md.
if exists('b:current_syntax')
  finish
endif
syntax case match

syntax keyword mdlDeclaration const dim block model optimizer param input state train parallel
syntax keyword mdlStatement repeat scan yield update return loss output group mesh shard pipeline zero recompute offload
syntax keyword mdlWord padded no_decay frozen over else as to keep just_in_time
syntax keyword mdlBoolean true false
syntax keyword mdlType f32 i32 bool
syntax match mdlFunction /\<[A-Za-z_]\w*\ze(/
syntax match mdlNumber /\<\d[0-9_]*\(\.\d\+\)\?\([eE][+-]\?\d\+\)\?\>/
syntax match mdlOperator /->\|[-+*\/%^<>=!]=\?/
syntax region mdlText start=/"/ end=/"/ oneline
syntax match mdlComment /#.*/ contains=@Spell

highlight default link mdlDeclaration Structure
highlight default link mdlStatement Statement
highlight default link mdlWord Keyword
highlight default link mdlBoolean Boolean
highlight default link mdlType Type
highlight default link mdlFunction Function
highlight default link mdlNumber Number
highlight default link mdlOperator Operator
highlight default link mdlText String
highlight default link mdlComment Comment
let b:current_syntax = 'mdl'
