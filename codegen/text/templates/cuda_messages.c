/* Parts of tensors become messages to other ranks, or messages parts of tensors; a collective has begun, or is done. */
extern "C" __global__ void __launch_bounds__(256)
    rt_messages(const RtMessagePart *parts, char *workspace, unsigned char *count, unsigned char *shown, char *t0,
                char *t1, char *t2, char *t3, char *t4, char *t5, char *t6, char *t7, char *t8, char *t9, char *t10,
                char *t11, char *t12, char *t13, char *t14, char *t15)
{
    char *const tensors[] = { t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15 };
    rt_count(count, shown);
    rt_copy_messages(parts, workspace, tensors);
}

/* The same, of a collective without such messages. */
extern "C" __global__ void __launch_bounds__(32) rt_progress(unsigned char *count, unsigned char *shown)
{
    rt_count(count, shown);
}
