$head
{
    $body
}
