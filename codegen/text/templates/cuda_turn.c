{
    const int turn = $from;
    $body
}
