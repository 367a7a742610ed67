/* A product that no library takes in this layout, at $where */
$head
{
    $body
}
