// Exceptions thrown, caught, thrown on and cleaned up after, sorting and text of the standard library; and ends. Under
// tests/programs/replay/record.c: it begins with an int3.
#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

static volatile unsigned long sink;

struct Cleaned {
	~Cleaned() { sink = sink + 1; }
};

__attribute__((noinline, noclone)) static unsigned long deep(int depth, unsigned long x)
{
	Cleaned cleaned;
	std::string text(static_cast<size_t>(depth) + 1, 'x');

	if (!depth)
		throw std::runtime_error(text);
	return deep(depth - 1, x) + text.size();
}

__attribute__((noinline, noclone)) static void thrown_on(int depth)
{
	try {
		sink = sink + deep(depth, 1);
	} catch (const std::logic_error &) {
		sink = 0;
	} catch (...) {
		sink = sink + 2;
		throw;
	}
}

int main()
{
	std::vector<std::string> words;
	std::function<bool(const std::string &, const std::string &)> shorter =
		[](const std::string &a, const std::string &b) { return a.size() < b.size(); };

	asm volatile("int3");
	for (int i = 0; i < 6; i++) {
		std::ostringstream text;
		text << i * i << ' ' << 1.5 * i;
		words.push_back(text.str());
	}
	std::sort(words.begin(), words.end());
	std::stable_sort(words.begin(), words.end(), shorter);
	for (int depth : { 0, 1, 7 }) {
		try {
			thrown_on(depth);
		} catch (const std::exception &e) {
			sink = sink + static_cast<unsigned long>(e.what()[0]);
		}
	}
	std::cout << words.back() << ' ' << std::make_shared<std::string>("end")->size() << std::endl;
	return 0;
}
