["const" "dim" "block" "model" "train" "parallel" "optimizer" "param" "input" "state"] @keyword
["repeat" "scan" "yield" "update" "return" "loss" "output" "group" "mesh" "shard" "pipeline" "zero" "recompute" "offload"] @keyword
["padded" "no_decay" "frozen" "over" "else" "as" "to" "keep" "just_in_time"] @keyword
(mean_of) @keyword
(boolean) @boolean
(number) @number
(string) @string
(comment) @comment
(call function: (identifier) @function)
(block name: (identifier) @function)
(const name: (identifier) @constant)
(dim name: (identifier) @type)
(type (identifier) @type)
(param name: (identifier) @property)
(state name: (identifier) @property)
(keyword name: (identifier) @variable.parameter)
(parameter name: (identifier) @variable.parameter)
(instance name: (identifier) @label)
["+" "-" "*" "/" "%" "^" "<" ">" "<=" ">=" "==" "!=" "=" "->"] @operator
