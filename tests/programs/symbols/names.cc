// Names that are mangled: namespaces, members, templates, overloads.
namespace deep {
struct Worker {
	template <typename T> __attribute__((noinline)) T turn(T x) { return x * seed + 1; }
	int seed;
};
} // namespace deep

extern "C" __attribute__((noinline)) int plain(int x) { return x + 2; }

int main(int argc, char **)
{
	deep::Worker worker{argc};
	return worker.turn<int>(argc) + plain(argc);
}
