/* $title
 $operands
 */
$head
{
    $body
}
