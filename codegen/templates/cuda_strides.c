for ($type pack = lane; pack < $packs; pack += $threads) {
    $body
}
