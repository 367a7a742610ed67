"""Kinds of failure that the compiler once had, by what is seen of them: the fixtures in found/ are of these kinds, and on
the compiler of that day random programs have to show them again (finds.py)."""
import re
from dataclasses import dataclass

# The last commit that has all of them.
COMMIT = "2a61d17"


@dataclass
class Kind:
    what: str
    signature: str   # of the outcome
    text: str = ""   # of the smallest program
    no_text: str = "^$"
    drawn: bool = True  # do random programs show it?
    later: bool = False  # found after that commit, which need not show it

    def fits(self, signature, text):
        return bool(re.search(self.signature, signature) and re.search(self.text, text, re.S) and
                    not re.search(self.no_text, text, re.S))


# The first that fits is the kind of a failure.
KINDS = {
    "input_by_record": Kind("an input [batch] beside [batch, seq] is fed the first tokens of all",
                            "wrong", r"i32\[batch\].*i32\[batch, |i32\[batch, .*i32\[batch\]"),
    "concat_inference": Kind("concat takes a dim because its size fits",
                             "refused: .*(stated as|cannot (join|add|multiply|subtract|divide|compare|choose)|labels of|"
                             "no dim of|is already|would have)|wrong: loss of step 1", r"concat\("),
    "split_extreme": Kind("the extreme over a split dim, and which elements equal it, in one kernel", "wrong",
                          r"(min|max)\(.*shard"),
    "padded_one": Kind("a padded dim of size 1: a gather writes it densely, its reader strides", "wrong", r"= 1[^\n]* padded"),
    "accumulator_alias": Kind("two accumulators of one type begin as one zero", "wrong",
                              r"batch = (\d+).*microbatch = (?!\1\b)", "repeat"),
    "alias": Kind("what a repeat carries is written over what its body captures", "wrong: (loss|grad_norm)", "repeat"),
    "gradient_sum": Kind("a gradient lacks the sum over a dim that an operand lacks",
                         "wrong: (grad_norm|a parameter)|gradient is wrong", "", "shard|repeat"),
    "next_turn": Kind("'never used' of what the next turn uses", "computed and never used", "repeat"),
    "recompute": Kind("the compiler crashes where turns recompute what others need", "compile: signal 11 *$"),
    "many": Kind("more than 512 results", "has more than N results|hang: compile"),
    "row_major": Kind("a collective, or a slice for a rank, of what is not row-major", "not row-major in memory"),
    "overlap": Kind("a kernel's result partly on its operand", "internal: _ overlaps _"),
    "row_product": Kind("oneDNN does not do products of one row and one column", "oneDNN cannot run"),
    "callee_place": Kind("a loop's operand lies otherwise than its body expects", "lies otherwise"),
    "two_uses_of_an_axis": Kind("both operands of a gather are split over one axis", "mesh axis twice"),
    "generated_c": Kind("the generated C does not compile", "C compiler"),
    "half_concat": Kind("concat of operands in different precisions", "operands of concat differ"),
    "take_order": Kind("a gather in another memory order", "cannot do this (take|gather|scatter_add)"),
    "rope_order": Kind("rope in another memory order", "cannot do this rope"),
    "attend_order": Kind("attention in another memory order", "cannot do this attend"),
    "wait": Kind("a wait for no collective writes beside the heap",
                 r"trainer: signal 6.*(free|corruption|malloc)|trainer: signal 11|waits for no collective|heap-buffer-overflow"),
    "hang": Kind("ranks wait for each other for ever", "^hang|sent nothing|has not answered"),
    "false_write": Kind("--verify-passes: 'writes where it reads', of a right program", "it writes _ at byte"),
    "false_place": Kind("--verify-passes: 'there now is', of a right program", "there now is what was written"),
    "false_index": Kind("--verify-passes: an index that is out of range only in the small instance", r"index N on rank N"),
    "state_view": Kind("a view of a weight is read after its update", "still read", drawn=False, later=True),
    "state_sent": Kind("a weight is updated while it is being sent", "still read", drawn=False, later=True),
    "half_extreme": Kind("of rounded values none is the maximum", "wrong|NaN", drawn=False, later=True),
    "padded_index": Kind("indices in padding", "out of range", drawn=False, later=True),
    "skipped_step": Kind("skipped steps of fp16 count for AdamW", "wrong", drawn=False, later=True),
    "pending_mask": Kind("zeros in the padding of a pending sum", "once for each rank", drawn=False, later=True),
    "product_operand": Kind("a product's bias is another product of its kernel", "computed inside", drawn=False, later=True),
    "long": Kind("kernels of many values take exponential time", "^hang", drawn=False, later=True),
    "local_stride": Kind("a split dim has one element on each rank, and any stride", "lies otherwise", drawn=False, later=True),
    "flat_padding": Kind("one loop over memory that is padded in one operand only", "reaches element", drawn=False, later=True),
    "truth_message": Kind("truth values between GPUs as four bytes each", "wrong", drawn=False, later=True),
    "attend_copies": Kind("copies of attention's operands have different orders", "crash", drawn=False, later=True),
    "truth_padding": Kind("what is no truth value is read as one in padding", "sanitizer", drawn=False, later=True),
    "carried_product": Kind("a carried product that has two names", "before it is defined", drawn=False, later=True),
    "stored_half": Kind("a kernel reads unrounded what it stores rounded", "wrong", drawn=False, later=True),
    "step_names": Kind("names that the training step has too", "refused", drawn=False, later=True),
    "long_names": Kind("two split dims of long names are one variable", "wrong", drawn=False, later=True),
    "state_padding": Kind("weights that are infinite in their padding", "wrong", drawn=False, later=True),
    "pending_maximum": Kind("maxima over ranks are added up before they are found", "crash", drawn=False, later=True),
    "number_beside_key": Kind("the number that dropout reads is rounded to a whole one", "wrong", drawn=False, later=True),
    "updated_early": Kind("overlap moves an update before a reader of the old weight", "still read", drawn=False, later=True),
    "cancelled_slope": Kind("--verify-passes: two roundings of zero differ", "late", drawn=False, later=True),
    "handed_on_labels": Kind("the mean of a cross_entropy that a repeat hands on counts no labels", "wrong", drawn=False,
                             later=True),
    "unread_start": Kind("0 times infinity in the gradient of a start that no turn reads", "wrong", drawn=False, later=True),
    "whole_gather": Kind("gathers of whole numbers and truth values", "crash|late|refused", drawn=False, later=True),
    "sum_name": Kind("accumulate gives a name a second time", "crash|verifier", drawn=False, later=True),
    "decay_paths": Kind("weight decay follows each path from a parameter to a product", "crash", drawn=False, later=True),
    "half_scatter": Kind("gradients of a gather are added up in bf16", "wrong", drawn=False, later=True),
    "stated_number": Kind("a whole number that is stated, or declared, to be i32", "refused", drawn=False, later=True),
    "no_gradient": Kind("a gradient of zero in the place of none, times infinity", "wrong", drawn=False, later=True),
    "shared_gradient": Kind("the gradient of two values is widened for one of them", "refused", drawn=False, later=True),
    "rope_pairs": Kind("pairs of a rotation that begin at odd elements", "crash", drawn=False, later=True),
    "returned_product": Kind("a product that a repeat returns is stored in another order for a second one", "refused",
                             drawn=False, later=True),
    "unwritten_padding": Kind("a query cut out of a whole dim, whose padding nobody writes", "not a number", drawn=False,
                              later=True),
    "in_flight_copy": Kind("a copy of what a wait gives is typed as in flight", "signal|in flight", drawn=False, later=True),
    "stage_sum": Kind("micro-batches of a pipeline add up to memory that is not the sum's own", "not carried in place", drawn=False, later=True),
    "stale_slots": Kind("slots of a pipeline planned before copies were added", "no slots", drawn=False, later=True),
    "loop_operands": Kind("a plain repeat carries values of different stages", "no stage holds", drawn=False, later=True),
    "stage_sum_twice": Kind("a sum over stages with two readers, one of which adds what another stage has", "no stage holds", drawn=False,
                            later=True),
    "carried_places": Kind("values that a pipeline carries trade places, or are read elsewhere", "wrong", drawn=False, later=True),
    "stage_copy": Kind("a loop beside the pipeline is started on stages that do not run it", "wrong", drawn=False, later=True),
    "stage_entry": Kind("a collective or a shared kernel writes where a stage receives what is carried", "wrong", drawn=False,
                        later=True),
    "copy_names": Kind("two repeats count their copies by one dim; a sum over stages loses terms in a product", "refused",
                       drawn=False, later=True),
    "unwritten_bool": Kind("--verify-passes: memory of copies that a stage does not have", "verifier", drawn=False, later=True),
    "stage_copies": Kind("--verify-passes: a loop inside a stage copies on all of them", "verifier", drawn=False, later=True),
    "shrunk_micros": Kind("the model for verification has more micro-batches than the model", "not only what", drawn=False, later=True),
    "prefetch_beside": Kind("weights of a loop beside a pipeline are gathered ahead", "broke the module", drawn=False, later=True),
    "accumulate_beside": Kind("gradients of a repeat with weights, beside a pipeline", "broke the module", drawn=False, later=True),
    "stage_of_none": Kind("an op that no stage needs", "passing zero to ctz", drawn=False, later=True),
    "simplified_number": Kind("0.5 * 1 becomes a number, which takes the dtype of a half", "broke the module", drawn=False, later=True),
    "stage_pack": Kind("what a stage sends is interleaved with another value for a product", "wrong", drawn=False, later=True),
    "padded_terms": Kind("the padding of a sum that is pending over some stages", "would lose terms", drawn=False, later=True),
    "kernel_values": Kind("a kernel of more operands than a launch takes", "crash", drawn=False, later=True),
    "absent_key": Kind("keys in a tile's padding weigh infinitely where all scores are far below zero", "not a number", drawn=False,
                       later=True),
    "unused_start": Kind("the start of a carried value that no iteration reads has a gradient: zero times infinity", "not a number",
                         drawn=False, later=True),
    "sum_elsewhere": Kind("an action writes a sum where its stage has no memory for it", "wrong", drawn=False, later=True),
    "empty_frame": Kind("a stage runs a function without a frame where it leaves memory out", "broke the module", drawn=False, later=True),
    "empty_call": Kind("the peak of memory is in a call of which the stage runs nothing", "signal 11", drawn=False, later=True),
    "packed_carried": Kind("interleaved results of two products are what a loop begins with", "has its", drawn=False, later=True),
    "routed_input": Kind("the experts of a router are a dim of an input", "declared as", drawn=False, later=True),
    "nested_stages": Kind("--verify-passes: a function around a pipeline runs on the stages of its operands", "verifier", drawn=False,
                          later=True),
    "empty_part": Kind("a stage without copies of a repeat has no part in its collectives", "0 blocks", drawn=False, later=True),
    "divided_sum": Kind("a part of a micro-batch reads a sum that a later part updates", "wrong|changes the result", drawn=False,
                        later=True),
    "zigzag_experts": Kind("the sequence dim of causal attention is that of experts too", "no member named", drawn=False, later=True),
    "muon_square": Kind("muon multiplies the longer side of a parameter by itself", "more than N dims", drawn=False, later=True),
    "parts_in_place": Kind("each part of a kernel stores over what another one reads", "internal: each part of kernel",
                           drawn=False, later=True),
    "false_neutral": Kind("a user's mask over positions is taken for one that leaves padding out", "wrong", drawn=False, later=True),
    "small_table": Kind("a table in a V is verified with stages in turn", "needs this of another one", drawn=False, later=True),
    "stored_late": Kind("a kernel stores a parameter as it is, after another result in its memory", "wrong", drawn=False, later=True),
    "bool_sum": Kind("a bool of one stage is summed over all as if it were a half", "wrong", drawn=False, later=True),
    "gone_dim": Kind("a dim that a value no longer has counts as contracted, by its name", "wrong", drawn=False, later=True),
    "no_copies": Kind("a repeat of no copies", "number of copies must be", drawn=False, later=True),
    "rope_groups": Kind("positions are broadcast in another order than that of what is rotated", "does not support this rope",
                        drawn=False, later=True),
    "unread_start": Kind("what a loop starts from decides on which stage it runs, though nothing reads it",
                         "would count", drawn=False, later=True),
    "pend_order": Kind("terms of a sum on two stages have different memory orders", "ill-typed pend", drawn=False, later=True),
    "number_compare": Kind("two numbers are compared as whole numbers", "wrong", drawn=False, later=True),
    "dropped_entropy": Kind("a dropped cross_entropy counts its labels where nothing is dropped: in evaluation", "cannot be taken",
                            drawn=False, later=True),
    "none_smallest": Kind("recompute auto does not find that none needs least memory", "no choice fits", drawn=False, later=True),
    "overhanging_part": Kind("a part of a value that a stage keeps has padding behind its end", "has no memory for", drawn=False,
                             later=True),
    "scanned_experts": Kind("a scan along the experts stacks a value that leads to the router", "loop gives", drawn=False,
                            later=True),
    "norm_in_half": Kind("inside of a norm all is rounded to bf16", "wrong", drawn=False, later=True),
    "rename_padded": Kind("refused with a remedy, and rightly so", "declare both _ alike", drawn=False),
}


def kind_of(signature, text):
    """The name of the kind, or None."""
    return next((name for name, kind in KINDS.items() if kind.fits(signature, text)), None)
