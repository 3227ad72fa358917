# ruff: noqa: E501 - one program a line
"""Right programs in the idioms of contests and of HumanEval. Scripts read `3\\n1 2 3\\n` and print 6."""

from __future__ import annotations

SUM = "n = int(input())\nprint(sum(map(int, input().split())))"
READ = "print(sum(map(int, d[1:])))"

SCRIPTS = {
    "input": SUM,
    "open of descriptor 0": f"d = open(0).read().split()\n{READ}",
    "open by name": f"d = open('/dev/stdin').read().split()\n{READ}",
    "open by name in a with": f"with open('/dev/stdin', 'r') as f:\n    d = f.read().split()\n{READ}",
    "open of /dev/fd": f"d = open('/dev/fd/0').read().split()\n{READ}",
    "open of /proc": f"d = open('/proc/self/fd/0').read().split()\n{READ}",
    "pathlib": f"from pathlib import Path\nd = Path('/dev/stdin').read_text().split()\n{READ}",
    "output by name": "n = input()\nprint(sum(map(int, input().split())), file=open('/dev/stdout', 'w'))",
    "os.read with fstat": "import io, os\ninput = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline\nn = int(input())\nprint(sum(map(int, input().split())))",
    "os.open by name": f"import os\nd = os.read(os.open('/dev/stdin', os.O_RDONLY), 10**6).split()\n{READ}",
    "os.stat of descriptor 0": f"import os\nd = os.read(0, os.stat(0).st_size).split()\n{READ}",
    "the folder of its file": f"import os\nos.path.dirname(os.path.abspath(__file__))\n{SUM}",
    "fast input and output": (
        "import os, sys\nfrom io import BytesIO, IOBase\nclass FastIO(IOBase):\n    newlines = 0\n"
        "    def __init__(self, file):\n        self._fd = file.fileno()\n        self.buffer = BytesIO()\n"
        "        self.writable = 'x' in file.mode or 'r' not in file.mode\n"
        "        self.write = self.buffer.write if self.writable else None\n"
        "    def read(self):\n        while True:\n            b = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192))\n"
        "            if not b: break\n            p = self.buffer.tell(); self.buffer.seek(0, 2); self.buffer.write(b); self.buffer.seek(p)\n"
        "        self.newlines = 0\n        return self.buffer.read()\n"
        "    def readline(self):\n        while self.newlines == 0:\n            b = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192))\n"
        "            self.newlines = b.count(b'\\n') + (not b)\n            p = self.buffer.tell(); self.buffer.seek(0, 2); self.buffer.write(b); self.buffer.seek(p)\n"
        "        self.newlines -= 1\n        return self.buffer.readline()\n"
        "    def flush(self):\n        if self.writable:\n            os.write(self._fd, self.buffer.getvalue())\n            self.buffer.truncate(0); self.buffer.seek(0)\n"
        "class IOWrapper(IOBase):\n    def __init__(self, file):\n        self.buffer = FastIO(file)\n        self.flush = self.buffer.flush\n        self.writable = self.buffer.writable\n"
        "        self.write = lambda s: self.buffer.write(s.encode('ascii'))\n        self.read = lambda: self.buffer.read().decode('ascii')\n        self.readline = lambda: self.buffer.readline().decode('ascii')\n"
        "sys.stdin, sys.stdout = IOWrapper(sys.stdin), IOWrapper(sys.stdout)\ninput = lambda: sys.stdin.readline().rstrip('\\r\\n')\n"
        "n = int(input())\nprint(sum(map(int, input().split())))"
    ),
    "sys.stdin.readline": "import sys\ninput = sys.stdin.readline\n" + SUM,
    "sys.stdin.buffer": f"import sys\nd = sys.stdin.buffer.read().split()\n{READ}",
    "stdin of the C reader": f"import sys\nd = sys.stdin.buffer.raw.readall().split()\n{READ}",
    "a loop to the end": "import sys\nfor line in sys.stdin:\n    last = line\nprint(sum(map(int, last.split())))",
    "a loop until EOFError": "s = 0\ninput()\nwhile True:\n    try: s += sum(map(int, input().split()))\n    except EOFError: break\nprint(s)",
    "fileinput": "import fileinput\nd = list(fileinput.input())\nprint(sum(map(int, d[1].split())))",
    "arguments that are not there": f"import sys\nif len(sys.argv) > 1: sys.stdin = open(sys.argv[1])\n{SUM}",
    "the last argument": f"import sys\nif sys.argv[-1] == 'ONLINE_JUDGE': raise SystemExit\n{SUM}",
    "exit": f"{SUM}\nexit()",
    "exit with 0": f"{SUM}\nexit(0)",
    "quit": f"{SUM}\nquit()",
    "sys.exit": f"import sys\n{SUM}\nsys.exit(0)",
    "SystemExit": f"{SUM}\nraise SystemExit",
    "os._exit after a flush": f"import os, sys\n{SUM}\nsys.stdout.flush()\nos._exit(0)",
    "a file that is missing": f"import sys\ntry: sys.stdin = open('input.txt')\nexcept FileNotFoundError: pass\n{SUM}",
    "a file that does not exist": f"import os, sys\nif os.path.exists('input.txt'): sys.stdin = open('input.txt')\n{SUM}",
    "os.path.isfile": f"import os, sys\nif os.path.isfile('in.txt'): sys.stdin = open('in.txt', 'r')\n{SUM}",
    "a file of an environment": f"import os, sys\nif 'LOCAL' in os.environ: sys.stdin = open('in')\nos.environ.get('X')\n{SUM}",
    "a thread with a deep stack": "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 26)\ndef main():\n    n = int(input())\n    print(sum(map(int, input().split())))\nt = threading.Thread(target=main)\nt.start()\nt.join()",
    "a thread with a huge stack": "import sys, threading\nsys.setrecursionlimit(1 << 30)\nthreading.stack_size(1 << 29)\ndef main():\n    n = int(input())\n    print(sum(map(int, input().split())))\nthreading.Thread(target=main).start()",
    "deep recursion": f"import sys\nsys.setrecursionlimit(10**6)\ndef f(k): return 0 if k == 0 else 1 + f(k - 1)\nf(50000)\n{SUM}",
    "deep recursion through C": f"import sys\nfrom functools import lru_cache\nsys.setrecursionlimit(10**6)\n@lru_cache(None)\ndef f(k): return 0 if k == 0 else 1 + f(k - 1)\nf(50000)\n{SUM}",
    "recursion without a limit": f"def f(k): return 0 if k == 0 else 1 + f(k - 1)\nf(5000)\n{SUM}",
    "a stack of resource": f"import resource, sys\nresource.setrlimit(resource.RLIMIT_STACK, (1 << 26, -1))\n{SUM}",
    "a stack without end": f"import resource\nresource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n{SUM}",
    "a stack as it is allowed": f"import resource\nsoft, hard = resource.getrlimit(resource.RLIMIT_STACK)\nresource.setrlimit(resource.RLIMIT_STACK, (hard, hard))\n{SUM}",
    "names of collections": "n = int(input())\nc = Counter(map(int, input().split()))\nd = deque(c)\ne = defaultdict(int)\nprint(sum(d))",
    "names of math and functools": "n = int(input())\nprint(reduce(gcd, [12, 18], floor(inf and 6.5) * 6))",
    "names of itertools and heapq": "n = int(input())\nh = list(map(int, input().split()))\nheapify(h)\nprint(list(accumulate(h))[-1] + bisect_left(h, 0) + len(list(permutations([], 1))))",
    "names of modules": "n = int(input())\nprint(sum(map(int, sys.stdin.readline().split())) + collections.Counter()['x'] + math.floor(0.5))",
    "pow with three numbers": "n = int(input())\nprint(pow(6, 1, 7))",
    "a huge number": f"print(str(3**10000)[:0], end='')\n{SUM}",
    "a huge number that is read": f"int('9' * 6000)\n{SUM}",
    "Decimal and Fraction": f"from decimal import *\nfrom fractions import Fraction\ngetcontext().prec = 50\n{SUM}",
    "output in one write": "import sys\nn = input()\nsys.stdout.write(str(sum(map(int, input().split()))) + '\\n')",
    "os.write": "import os\nn = input()\nos.write(1, str(sum(map(int, input().split()))).encode())",
    "a file on descriptor 1 that is not closed": "import os\nn = input()\nf = os.fdopen(1, 'w')\nf.write(str(sum(map(int, input().split()))))",
    "output that atexit writes": "import atexit, io, sys\nb = io.StringIO()\nsys.stdout = b\n@atexit.register\ndef w(): sys.__stdout__.write(b.getvalue())\n" + SUM,
    "print to a buffer": "import io, os, sys\nb = io.BytesIO()\nn = input()\nb.write(str(sum(map(int, input().split()))).encode())\nos.write(1, b.getvalue())",
    "a main function": "def main():\n    n = int(input())\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    main()",
    "annotations of the future": f"from __future__ import annotations\n{SUM}",
    "an annotation without import": f"def f(x: List[int]) -> Optional[int]: return sum(x)\n{SUM}",
    "doctest": f"import doctest\ndoctest.testmod()\n{SUM}",
    "random with a seed": f"import random\nrandom.seed(1)\nrandom.shuffle([1, 2])\n{SUM}",
    "time": f"import time\nt = time.perf_counter(), time.time()\n{SUM}",
    "numpy": "import numpy as np\nn = int(input())\nprint(int(np.array(input().split(), dtype=int).sum()))",
    "numpy that reads": "import sys\nimport numpy as np\nd = np.loadtxt(sys.stdin, skiprows=1, dtype=np.int64)\nprint(d.sum())",
    "numpy with random numbers and matrices": f"import numpy as np\nnp.random.seed(0)\nnp.random.default_rng(0).random(3)\nnp.linalg.inv(np.eye(3)) @ np.fft.fft(np.ones(3))\n{SUM}",
    "sortedcontainers": "from sortedcontainers import SortedList\nn = int(input())\ns = SortedList(map(int, input().split()))\nprint(s[0] + s[1] + s[-1])",
    "names of APPS' judge": "n = int(input())\nt = time.time()\nprint(int(np.array([6]).sum() * fractions.Fraction(1)))",
    "tracemalloc and rot13": f"import codecs, tracemalloc\ntracemalloc.start()\ncodecs.encode('a', 'rot13')\n{SUM}",
    "sortedcontainers without import": "n = int(input())\nprint(sum(SortedList(map(int, input().split()))))",
}  # fmt: skip

STARTER = "class Solution:\n    def total(self, nums: List[int]) -> int:\n        "

FUNCTIONS = {
    "a function": "def total(nums):\n    return sum(nums)",
    "a method": "class Solution:\n    def total(self, nums: List[int]) -> int:\n        return sum(nums)",
    "names that are not imported": "class Solution:\n    def total(self, nums):\n        d = defaultdict(int)\n        for v in nums: d[0] += v\n        return min(inf, d[0])",
    "a class with helpers": "class Node:\n    pass\nclass Solution:\n    def total(self, nums):\n        return self.add(nums)\n    def add(self, nums): return sum(nums)",
    "a method without its class": "def total(self, nums: List[int]) -> int:\n    return sum(nums)",
    "methods without their class": "import math\ndef add(self, nums): return sum(nums)\ndef total(self, nums):\n    return math.floor(self.add(nums))",
    "a method that is still indented": "    def total(self, nums: List[int]) -> int:\n        return sum(nums)",
    "methods whose first line lost its margin": "def add(self, nums):\n        return sum(nums)\n\n    def total(self, nums):\n        return self.add(nums)",
    "the body": "        return sum(nums)",
    "the body without its margin": "return sum(nums)",
    "a body whose first line lost its margin": "s = 0\n        for v in nums:\n            s += v\n        return s",
    "a body that begins with a loop": "for v in nums:\n            nums = [v] and nums\n        return sum(nums)",
    "a body at the margin": "s = 0\nfor v in nums:\n    s += v\nreturn s",
    "a body with an if": "if not nums:\n    return 0\nreturn sum(nums)",
    "a lambda": "total = lambda nums: sum(nums)",
    "a main block": "def total(nums):\n    return sum(nums)\nif __name__ == '__main__':\n    print(total(list(map(int, input().split()))))",
    "a number of numpy": "import numpy as np\ndef total(nums):\n    return np.sum(nums)",
    "a member of an IntEnum": "from enum import IntEnum\nclass E(IntEnum):\n    SIX = 6\ndef total(nums): return E.SIX",
    "nodes in annotations": "class Solution:\n    def add(self, a: Optional[ListNode], b: TreeNode): pass\n    def total(self, nums):\n        return sum(ListNode(v).val for v in nums)",
    "a definition under a try": "try:\n    import numpy as np\n    def total(nums): return int(np.sum(nums))\nexcept ImportError:\n    def total(nums): return sum(nums)",
    "a nested function": "class Solution:\n    def total(self, nums):\n        @cache\n        def f(k): return 0 if k == len(nums) else nums[k] + f(k + 1)\n        return f(0)",
    "output on the way": "def total(nums):\n    print('debug', nums)\n    return sum(nums)",
    "annotations of the future": "from __future__ import annotations\nclass Solution:\n    def total(self, nums: list[int]) -> int:\n        return sum(nums)",
}  # fmt: skip
"""For `total` of [1, 2, 3], under STARTER."""

CHECKED = {
    "the body": "    return 2 * x\n",
    "the body without its margin": "return 2 * x",
    "the whole function": "def double(x):\n    return 2 * x",
    "a body that uses the starter's helper": "    return twice(x)",
    "the whole without the starter's helper": "def double(x):\n    return twice(x)",
    "the whole with the starter": "import math\n\ndef twice(x):\n    return math.floor(2 * x)\n\ndef double(x):\n    return twice(x)",
    "a body and more code": "    return 2 * x\n\n\ndef other():\n    return 1\n\nif __name__ == '__main__':\n    print(double(int(input())))",
    "a body that loops": "    for _ in range(1):\n        x = 2 * x\n    return x",
    "an if at the margin": "if x == 0:\n    return 0\nreturn 2 * x",
    "a number of numpy": "import numpy as np\ndef double(x):\n    return np.int64(2 * x)",
}  # fmt: skip
"""For PROMPT."""

PROMPT = 'import math\n\ndef twice(x):\n    return 2 * x\n\ndef double(x):\n    """Twice x.\n    >>> double(2)\n    4\n    """\n'

WRONG = {
    "nothing": "",
    "another name": "def other(nums): return sum(nums)",
    "a wrong method": "def total(self, nums): return max(nums)",
    "a wrong body": "return max(nums)",
    "a name that judges import": "x = reduce",
    "numpy's other number": "import numpy as np\ndef total(nums): return np.float64(6.5)",
    "a body that does not end": "return sum(nums",
    "the value as text": "def total(nums): return '6'",
    "an int that equals all": "class E(int):\n    def __eq__(self, other): return True\ndef total(nums): return E(5)",
    "an iterator": "def total(nums): yield 6",
}
"""For the same as FUNCTIONS."""

FENCES = {
    "python": "```python\n{}\n```",
    "Python3": "Here it is:\n\n```Python3\n{}\n```\nIt adds the numbers.",
    "no language": "```\n{}\n```",
    "a space": "``` python\n{}\n```",
    "a title": "```py title=\"main.py\"\n{}\n```",
    "tildes": "~~~python\n{}\n~~~",
    "not closed": "```python\n{}",
    "a line end of Windows": "```python\r\n{}\r\n```\r\n",
    "an example before": "It reads:\n```\n1 2\n```\n```python\n{}\n```",
    "an example after": "```python\n{}\n```\nOutput:\n```\n3\n```",
    "a first try before": "```python\nprint(0)\n```\nThat is wrong. Better:\n```python\n{}\n```",
    "under a list": "1. So:\n   ```python\n{}\n   ```",
    "four backticks": "````python\n{}\n````",
    "many tildes": "~~~~~\n{}\n~~~~~",
    "an end without a line of its own": "```python\n{}```",
    "a beginning without a line of its own": "Here: ```python\n{}\n```",
    "a session after": "```python\n{}\n```\n```pycon\n>>> 1\n```",
}  # fmt: skip
"""Around any program."""
