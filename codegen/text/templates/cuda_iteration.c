{
    const int iteration = $from;
    $body
}
