/* A library whose function is found in its file; WHICH makes two files of one source differ. */
int work(int n)
{
	return n * WHICH;
}
