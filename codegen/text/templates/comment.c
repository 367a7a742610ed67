/* $title
 $operands
 */
