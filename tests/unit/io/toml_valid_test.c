// toml_valid_test.c — documents that TOML 1.0.0 allows, and what they mean.
//
// Each row is a document and its tree written out: floats with an f before them, strings in single
// quotes with control characters, single quotes and backslashes as \xNN, times with their offset in
// minutes.
#include "support.h"

#include "base/buffer.h"
#include "base/str.h"
#include "io/toml.h"

#include <math.h>

typedef struct valid_case {
    const char *text;
    size_t bytes;
    const char *tree;
} valid_case;

#define T(literal) literal, sizeof(literal) - 1

static const valid_case cases[] = {
    // documents, comments and line ends
    {T(""), "{}"},
    {T("\n"), "{}"},
    {T("\r\n"), "{}"},
    {T("  \t\n \n"), "{}"},
    {T("# only a comment"), "{}"},
    {T("# comment\n\n# another\n"), "{}"},
    {T("\357\273\277a = 1\n"), "{a = 1}"},
    {T("\357\273\277"), "{}"},
    {T("\357\273\277# comment\n"), "{}"},
    {T("a = 1"), "{a = 1}"},
    {T("a = 1\n"), "{a = 1}"},
    {T("a = 1\r\nb = 2\r\n"), "{a = 1, b = 2}"},
    {T("a = 1\nb = 2\r\n"), "{a = 1, b = 2}"},
    {T("a = 1 # comment"), "{a = 1}"},
    {T("a = 1# no space\nb = 2"), "{a = 1, b = 2}"},
    {T("#a = 1\nb = 2 # c = 3 # d\n"), "{b = 2}"},
    {T("# tab\tand é € \360\237\230\200 in comments\na = 1"), "{a = 1}"},
    {T("\t a\t=\t1 \t\n"), "{a = 1}"},
    {T("a=1"), "{a = 1}"},
    {T("[a] # comment\nb = 1"), "{a = {b = 1}}"},
    {T("a = \"# no comment\" # comment"), "{a = '# no comment'}"},
    {T("# [x]\n# \"open\n# '''\na = 1"), "{a = 1}"},
    // keys
    {T("key = 1\nbare_key = 2\nbare-key = 3\n1234 = 4\n-1 = 5\n_ = 6\n- = 7\nA-z_9 = 8"),
     "{key = 1, bare_key = 2, bare-key = 3, 1234 = 4, -1 = 5, _ = 6, - = 7, A-z_9 = 8}"},
    {T("\"127.0.0.1\" = 1\n\"character encoding\" = 2\n\"ʎǝʞ\" = 3\n'key2' = 4\n'quoted \"value\"' "
       "= 5"),
     "{'127.0.0.1' = 1, 'character encoding' = 2, 'ʎǝʞ' = 3, key2 = 4, 'quoted \"value\"' = 5}"},
    {T("\"\" = 1"), "{'' = 1}"},
    {T("'' = 1"), "{'' = 1}"},
    {T("\"a\\u0062\\t\\\"\" = 1"), "{'ab\\x09\"' = 1}"},
    {T("'a\\b' = 1"), "{'a\\x5cb' = 1}"},
    {T("a.b = 1"), "{a = {b = 1}}"},
    {T("a . b = 1"), "{a = {b = 1}}"},
    {T("a\t.\tb.c = 1"), "{a = {b = {c = 1}}}"},
    {T("a.\"b.c\".d = 1"), "{a = {'b.c' = {d = 1}}}"},
    {T("a.'b.c' = 1\na.\"\".'' = 2"), "{a = {'b.c' = 1, '' = {'' = 2}}}"},
    {T("name = 1\nphysical.color = 2\nphysical.shape = 3\nsite.\"google.com\" = true"),
     "{name = 1, physical = {color = 2, shape = 3}, site = {'google.com' = true}}"},
    {T("3.14159 = 1"), "{3 = {14159 = 1}}"},
    {T("true = 1\nfalse = 2\ninf = 3\nnan = 4\n1979-05-27 = 5"),
     "{true = 1, false = 2, inf = 3, nan = 4, 1979-05-27 = 5}"},
    {T("apple.type = 1\norange.type = 2\napple.skin = 3\norange.skin = 4"),
     "{apple = {type = 1, skin = 3}, orange = {type = 2, skin = 4}}"},
    {T("fruit.apple.smooth = true\nfruit.orange = 2"),
     "{fruit = {apple = {smooth = true}, orange = 2}}"},
    {T("\"a\" = 1\n\"A\" = 2\n\"À\" = 3\n\"A\314\200\" = 4"),
     "{a = 1, A = 2, 'À' = 3, 'A\314\200' = 4}"},
    {T("a.b.c.d.e.f = 1\na.b.c.d.e.g = 2\na.b.h = 3"),
     "{a = {b = {c = {d = {e = {f = 1, g = 2}}}, h = 3}}}"},
    {T("\"\\n\" = 1"), "{'\\x0a' = 1}"},
    {T("a = {}\nb.c = {}"), "{a = {}, b = {c = {}}}"},
    {T("1.2 = 3\n1.4 = 5"), "{1 = {2 = 3, 4 = 5}}"},
    {T("\"#\" = 1\n\"=\" = 2"), "{'#' = 1, '=' = 2}"},
    {T("01 = 1"), "{01 = 1}"},
    {T("\"\\u0000\" = 1"), "{'\\x00' = 1}"},
    {T("'a.b'.c = 1"), "{'a.b' = {c = 1}}"},
    // basic strings
    {T("a = \"\""), "{a = ''}"},
    {T("a = \"text\""), "{a = 'text'}"},
    {T("a = \"I'm a string. \\\"You can quote me\\\". Name\\tJos\\u00E9\\nLocation\\tSF.\""),
     "{a = 'I\\x27m a string. \"You can quote me\". Name\\x09José\\x0aLocation\\x09SF.'}"},
    {T("a = \"\\b\\t\\n\\f\\r\\\"\\\\\""), "{a = '\\x08\\x09\\x0a\\x0c\\x0d\"\\x5c'}"},
    {T("a = \"\\u0000\\u001F\\u007f\\u0080\""), "{a = '\\x00\\x1f\\x7f\302\200'}"},
    {T("a = \"\\u03B4 \\U000003B4 \\U0001F600 \\uFFFF \\U0010FFFF \\uD7FF \\uE000\""),
     "{a = 'δ δ \360\237\230\200 \357\277\277 \364\217\277\277 \355\237\277 \356\200\200'}"},
    {T("a = \"é€\360\237\230\200\""), "{a = 'é€\360\237\230\200'}"},
    {T("a = \"tab\there\""), "{a = 'tab\\x09here'}"},
    {T("a = \"# [x] = {y}\""), "{a = '# [x] = {y}'}"},
    {T("a = \"\\\\u0041 \\\\\\\\n\""), "{a = '\\x5cu0041 \\x5c\\x5cn'}"},
    {T("a = \"\\\"\\\"\""), "{a = '\"\"'}"},
    {T("a = \"'''\""), "{a = '\\x27\\x27\\x27'}"},
    {T("a = \"\302\200\302\237\""), "{a = '\302\200\302\237'}"},
    {T("a = \"\\uabcd\\uABCD\""), "{a = 'ꯍꯍ'}"},
    // multi-line basic strings
    {T("a = \"\"\"\"\"\""), "{a = ''}"},
    {T("a = \"\"\"one line\"\"\""), "{a = 'one line'}"},
    {T("a = \"\"\"\nRoses are red\nViolets are blue\"\"\""),
     "{a = 'Roses are red\\x0aViolets are blue'}"},
    {T("a = \"\"\"\r\nRoses are red\r\nViolets are blue\"\"\""),
     "{a = 'Roses are red\\x0aViolets are blue'}"},
    {T("a = \"\"\"\n\nx\"\"\""), "{a = '\\x0ax'}"},
    {T("a = \"\"\"x\n\"\"\""), "{a = 'x\\x0a'}"},
    {T("a = \"\"\"\nThe quick brown \\\n\n\n  fox jumps over \\\n    the lazy dog.\"\"\""),
     "{a = 'The quick brown fox jumps over the lazy dog.'}"},
    {T("a = \"\"\"\\\n       The quick brown \\\n       fox.\\\n       \"\"\""),
     "{a = 'The quick brown fox.'}"},
    {T("a = \"\"\"\\\r\n  x \\  \r\n  \t\r\n  y\"\"\""), "{a = 'x y'}"},
    {T("a = \"\"\"a \\ \t \n b\"\"\""), "{a = 'a b'}"},
    {T("a = \"\"\"Here are two quotation marks: \"\". Simple enough.\"\"\""),
     "{a = 'Here are two quotation marks: \"\". Simple enough.'}"},
    {T("a = \"\"\"three: \"\"\\\".\"\"\""), "{a = 'three: \"\"\".'}"},
    {T("a = \"\"\"\"\"\\\"\"\"\\\"\"\"\\\"\"\"\\\"\"\"\\\".\"\"\""),
     "{a = '\"\"\"\"\"\"\"\"\"\"\"\"\"\"\".'}"},
    {T("a = \"\"\"\"This,\" she said, \"is just a pointless statement.\"\"\"\""),
     "{a = '\"This,\" she said, \"is just a pointless statement.\"'}"},
    {T("a = \"\"\"\"one\"\"\""), "{a = '\"one'}"},
    {T("a = \"\"\"\"\"two\"\"\""), "{a = '\"\"two'}"},
    {T("a = \"\"\"x\"\"\"\""), "{a = 'x\"'}"},
    {T("a = \"\"\"x\"\"\"\"\""), "{a = 'x\"\"'}"},
    {T("a = \"\"\"\"\"\"\""), "{a = '\"'}"},
    {T("a = \"\"\"\"\"\"\"\""), "{a = '\"\"'}"},
    {T("a = \"\"\"\n\"quoted\"\n\"\"\""), "{a = '\"quoted\"\\x0a'}"},
    {T("a = \"\"\"\\u0041\\n\\\\\"\"\""), "{a = 'A\\x0a\\x5c'}"},
    {T("a = \"\"\"a\tb # c\n[d]\ne = 1\"\"\""), "{a = 'a\\x09b # c\\x0a[d]\\x0ae = 1'}"},
    {T("a = \"\"\"\\\n\"\"\""), "{a = ''}"},
    {T("a = \"\"\"\\\n\\\n x\"\"\""), "{a = 'x'}"},
    {T("a = \"\"\"\n\\\n\"\"\""), "{a = ''}"},
    {T("a = \"\"\"\\\\\n\"\"\""), "{a = '\\x5c\\x0a'}"},
    {T("a = \"\"\" \\\"\"\" \"\"\""), "{a = ' \"\"\" '}"},
    // literal strings
    {T("a = ''"), "{a = ''}"},
    {T("a = 'C:\\Users\\nodejs\\templates'"), "{a = 'C:\\x5cUsers\\x5cnodejs\\x5ctemplates'}"},
    {T("a = '\\\\ServerX\\admin$\\system32\\'"),
     "{a = '\\x5c\\x5cServerX\\x5cadmin$\\x5csystem32\\x5c'}"},
    {T("a = 'Tom \"Dubs\" Preston-Werner'"), "{a = 'Tom \"Dubs\" Preston-Werner'}"},
    {T("a = '<\\i\\c*\\s*>'"), "{a = '<\\x5ci\\x5cc*\\x5cs*>'}"},
    {T("a = 'tab\there'"), "{a = 'tab\\x09here'}"},
    {T("a = 'é'"), "{a = 'é'}"},
    {T("a = '\\u0041'"), "{a = '\\x5cu0041'}"},
    {T("a = '\"\"\"'"), "{a = '\"\"\"'}"},
    {T("a = ''''''"), "{a = ''}"},
    {T("a = '''\nThe first newline is\ntrimmed in raw strings.\n'''"),
     "{a = 'The first newline is\\x0atrimmed in raw strings.\\x0a'}"},
    {T("a = '''\r\nx\r\ny'''"), "{a = 'x\\x0ay'}"},
    {T("a = '''I [dw]on't need \\d{2} apples'''"), "{a = 'I [dw]on\\x27t need \\x5cd{2} apples'}"},
    {T("a = '''Here are fifteen quotation marks: \"\"\"\"\"\"\"\"\"\"\"\"\"\"\"'''"),
     "{a = 'Here are fifteen quotation marks: \"\"\"\"\"\"\"\"\"\"\"\"\"\"\"'}"},
    {T("a = ''''That,' she said, 'is still pointless.''''"),
     "{a = '\\x27That,\\x27 she said, \\x27is still pointless.\\x27'}"},
    {T("a = '''x'''''"), "{a = 'x\\x27\\x27'}"},
    {T("a = '''''''"), "{a = '\\x27'}"},
    {T("a = ''''''''"), "{a = '\\x27\\x27'}"},
    {T("a = '''\\\n x'''"), "{a = '\\x5c\\x0a x'}"},
    {T("a = '''\\'''"), "{a = '\\x5c'}"},
    {T("a = '''it's'''"), "{a = 'it\\x27s'}"},
    // integers
    {T("a = 0\nb = +0\nc = -0"), "{a = 0, b = 0, c = 0}"},
    {T("a = 42\nb = +99\nc = -17"), "{a = 42, b = 99, c = -17}"},
    {T("a = 1_000\nb = 5_349_221\nc = 53_49_221\nd = 1_2_3_4_5"),
     "{a = 1000, b = 5349221, c = 5349221, d = 12345}"},
    {T("a = 9223372036854775807\nb = -9223372036854775808"),
     "{a = 9223372036854775807, b = -9223372036854775808}"},
    {T("a = +9_223_372_036_854_775_807"), "{a = 9223372036854775807}"},
    {T("a = 0xDEADBEEF\nb = 0xdeadbeef\nc = 0xdead_beef\nd = 0xDeAdBeEf"),
     "{a = 3735928559, b = 3735928559, c = 3735928559, d = 3735928559}"},
    {T("a = 0o01234567\nb = 0o755\nc = 0o0_7"), "{a = 342391, b = 493, c = 7}"},
    {T("a = 0b11010110\nb = 0b0\nc = 0b1_0"), "{a = 214, b = 0, c = 2}"},
    {T("a = 0x7fffffffffffffff\nb = 0o777777777777777777777\nc = "
       "0b111111111111111111111111111111111111111111111111111111111111111"),
     "{a = 9223372036854775807, b = 9223372036854775807, c = 9223372036854775807}"},
    {T("a = 0x0\nb = 0x00ff\nc = 0o0\nd = 0b0001"), "{a = 0, b = 255, c = 0, d = 1}"},
    {T("a = 0xe1\nb = 0xE_1"), "{a = 225, b = 225}"},
    {T("a = [0, +1, -1]"), "{a = [0, 1, -1]}"},
    {T("a = 10\nb = 100_0"), "{a = 10, b = 1000}"},
    {T("a = 0x0000000000000000000000000000001"), "{a = 1}"},
    // floats
    {T("a = +1.0\nb = 3.1415\nc = -0.01"), "{a = f1, b = f3.1415000000000002, c = f-0.01}"},
    {T("a = 5e+22\nb = 1e06\nc = -2E-2"),
     "{a = f4.9999999999999996e+22, b = f1000000, c = f-0.02}"},
    {T("a = 6.626e-34"), "{a = f6.6259999999999998e-34}"},
    {T("a = 224_617.445_991_228"), "{a = f224617.44599122801}"},
    {T("a = 0.0\nb = -0.0\nc = +0.0"), "{a = f0, b = f-0, c = f0}"},
    {T("a = inf\nb = +inf\nc = -inf"), "{a = finf, b = finf, c = f-inf}"},
    {T("a = nan\nb = +nan\nc = -nan"), "{a = fnan, b = fnan, c = fnan}"},
    {T("a = 1e1_00\nb = 1_0e1\nc = 1_0.0_1e0_1"),
     "{a = f1e+100, b = f100, c = f100.09999999999999}"},
    {T("a = 0e0\nb = 0E+0\nc = -0e-0"), "{a = f0, b = f0, c = f-0}"},
    {T("a = 1e0010"), "{a = f10000000000}"},
    {T("a = 0.1\nb = 0.2\nc = 0.30000000000000004"),
     "{a = f0.10000000000000001, b = f0.20000000000000001, c = f0.30000000000000004}"},
    {T("a = 1.7976931348623157e308\nb = 5e-324\nc = 2.2250738585072014e-308"),
     "{a = f1.7976931348623157e+308, b = f4.9406564584124654e-324, c = f2.2250738585072014e-308}"},
    {T("a = 1e400\nb = -1e400\nc = 1e-400"), "{a = finf, b = f-inf, c = f0}"},
    {T("a = 123456789012345678901234567890.0"), "{a = f1.2345678901234568e+29}"},
    {T("a = 9007199254740993.0"), "{a = f9007199254740992}"},
    {T("a = [1.5, 2e3, inf]"), "{a = [f1.5, f2000, finf]}"},
    {T("a = 3.0e0\nb = 1.000_000"), "{a = f3, b = f1}"},
    {T("a = 0.1000000000000000055511151231257827021181583404541015625"),
     "{a = f0.10000000000000001}"},
    {T("a = -0.5e-1_0"), "{a = f-5.0000000000000002e-11}"},
    {T("a = "
       "1111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
       "1111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
       "111111111111111111.5"),
     "{a = f1.1111111111111111e+199}"},
    {T("a = "
       "0."
       "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
       "0000000001"),
     "{a = f1.0000000000000001e-101}"},
    // booleans
    {T("a = true\nb = false"), "{a = true, b = false}"},
    {T("a = [true, false]"), "{a = [true, false]}"},
    {T("a=true#comment"), "{a = true}"},
    {T("a = {b = true, c = false}"), "{a = {b = true, c = false}}"},
    // dates and times
    {T("a = 1979-05-27T07:32:00Z"), "{a = 1979-05-27T07:32:00+0}"},
    {T("a = 1979-05-27T00:32:00-07:00\nb = 1979-05-27T00:32:00.999999-07:00"),
     "{a = 1979-05-27T00:32:00-420, b = 1979-05-27T00:32:00.999999000-420}"},
    {T("a = 1979-05-27 07:32:00Z"), "{a = 1979-05-27T07:32:00+0}"},
    {T("a = 1979-05-27t07:32:00z"), "{a = 1979-05-27T07:32:00+0}"},
    {T("a = 1979-05-27T07:32:00\nb = 1979-05-27T00:32:00.999999"),
     "{a = 1979-05-27T07:32:00, b = 1979-05-27T00:32:00.999999000}"},
    {T("a = 1979-05-27 07:32:00"), "{a = 1979-05-27T07:32:00}"},
    {T("a = 1979-05-27"), "{a = 1979-05-27}"},
    {T("a = 07:32:00\nb = 00:32:00.999999"), "{a = 07:32:00, b = 00:32:00.999999000}"},
    {T("a = 2000-02-29\nb = 2024-02-29\nc = 2400-02-29"),
     "{a = 2000-02-29, b = 2024-02-29, c = 2400-02-29}"},
    {T("a = 0001-01-01\nb = 9999-12-31"), "{a = 0001-01-01, b = 9999-12-31}"},
    {T("a = 2023-01-31\nb = 2023-02-28\nc = 2023-03-31\nd = 2023-04-30\ne = 2023-05-31\nf = "
       "2023-06-30"),
     "{a = 2023-01-31, b = 2023-02-28, c = 2023-03-31, d = 2023-04-30, e = 2023-05-31, f = "
     "2023-06-30}"},
    {T("a = 2023-07-31\nb = 2023-08-31\nc = 2023-09-30\nd = 2023-10-31\ne = 2023-11-30\nf = "
       "2023-12-31"),
     "{a = 2023-07-31, b = 2023-08-31, c = 2023-09-30, d = 2023-10-31, e = 2023-11-30, f = "
     "2023-12-31}"},
    {T("a = 23:59:59\nb = 00:00:00"), "{a = 23:59:59, b = 00:00:00}"},
    {T("a = 12:00:00.5\nb = 12:00:00.000001"), "{a = 12:00:00.500000000, b = 12:00:00.000001000}"},
    {T("a = 1979-05-27T00:00:00+00:00\nb = 1979-05-27T00:00:00-00:00"),
     "{a = 1979-05-27T00:00:00+0, b = 1979-05-27T00:00:00+0}"},
    {T("a = 1979-05-27T00:00:00+23:59\nb = 1979-05-27T00:00:00-23:59\nc = "
       "1979-05-27T00:00:00+05:30"),
     "{a = 1979-05-27T00:00:00+1439, b = 1979-05-27T00:00:00-1439, c = 1979-05-27T00:00:00+330}"},
    {T("a = 1979-05-27 # comment\nb = 1979-05-27 \n"), "{a = 1979-05-27, b = 1979-05-27}"},
    {T("a = [1979-05-27, 07:32:00]"), "{a = [1979-05-27, 07:32:00]}"},
    {T("a = [1979-05-27 07:32:00, 1979-05-27 ]"), "{a = [1979-05-27T07:32:00, 1979-05-27]}"},
    {T("a = 1979-05-27   # two spaces"), "{a = 1979-05-27}"},
    {T("a = {b = 1979-05-27 07:32:00Z}"), "{a = {b = 1979-05-27T07:32:00+0}}"},
    // arrays
    {T("a = []"), "{a = []}"},
    {T("a = [ ]"), "{a = []}"},
    {T("a = [\n]"), "{a = []}"},
    {T("a = [1, 2, 3]"), "{a = [1, 2, 3]}"},
    {T("a = [1,2,3,]"), "{a = [1, 2, 3]}"},
    {T("a = [ 1 , 2 , ]"), "{a = [1, 2]}"},
    {T("a = [\"red\", \"yellow\"]"), "{a = ['red', 'yellow']}"},
    {T("a = [[1, 2], [3, 4, 5]]"), "{a = [[1, 2], [3, 4, 5]]}"},
    {T("a = [[1, 2], [\"a\", \"b\"]]"), "{a = [[1, 2], ['a', 'b']]}"},
    {T("a = [\"all\", 'strings', \"\"\"are\"\"\", '''same''']"),
     "{a = ['all', 'strings', 'are', 'same']}"},
    {T("a = [0.1, 0.2, 1, 2]"), "{a = [f0.10000000000000001, f0.20000000000000001, 1, 2]}"},
    {T("a = [1, \"x\", 2.5, true, [], {}, 1979-05-27]"),
     "{a = [1, 'x', f2.5, true, [], {}, 1979-05-27]}"},
    {T("a = [\n  1,\n  2, # two\n]"), "{a = [1, 2]}"},
    {T("a = [ # one\n# two\n1 # three\n, # four\n2 # five\n# six\n] # seven"), "{a = [1, 2]}"},
    {T("a = [\r\n1,\r\n2\r\n]"), "{a = [1, 2]}"},
    {T("a = [\n\n1\n\n,\n\n2\n\n,\n\n]"), "{a = [1, 2]}"},
    {T("a = [[[[]]]]"), "{a = [[[[]]]]}"},
    {T("a = [{x = 1}, {x = 2, y = 3}]"), "{a = [{x = 1}, {x = 2, y = 3}]}"},
    {T("a = [{}, {}]"), "{a = [{}, {}]}"},
    {T("a = [\"a]\", \"b,\"]"), "{a = ['a]', 'b,']}"},
    {T("a = [\"\"\"x\ny\"\"\", 1]"), "{a = ['x\\x0ay', 1]}"},
    {T("a = [[], [1], [[2]]]"), "{a = [[], [1], [[2]]]}"},
    {T("\ta = [\t1\t,\t2\t]"), "{a = [1, 2]}"},
    {T("a = [ \"one\" ,# c\n \"two\"]"), "{a = ['one', 'two']}"},
    // inline tables
    {T("a = {}"), "{a = {}}"},
    {T("a = { }"), "{a = {}}"},
    {T("a = {b = 1}"), "{a = {b = 1}}"},
    {T("a = { x = 1, y = 2 }"), "{a = {x = 1, y = 2}}"},
    {T("a = { first = \"Tom\", last = \"P\" }"), "{a = {first = 'Tom', last = 'P'}}"},
    {T("a = { type.name = \"pug\" }"), "{a = {type = {name = 'pug'}}}"},
    {T("a = {b.c = 1, b.d = 2, e = 3}"), "{a = {b = {c = 1, d = 2}, e = 3}}"},
    {T("a = {b = {c = {d = 1}}}"), "{a = {b = {c = {d = 1}}}}"},
    {T("a = {b = [1,\n2\n]}"), "{a = {b = [1, 2]}}"},
    {T("a = {b = \"\"\"x\ny\"\"\"}"), "{a = {b = 'x\\x0ay'}}"},
    {T("a = {\tb\t=\t1\t,\tc = 2\t}"), "{a = {b = 1, c = 2}}"},
    {T("a = {\"b c\" = 1, 'd' = 2}"), "{a = {'b c' = 1, d = 2}}"},
    {T("a = {b = 1}\nc = {b = 2}"), "{a = {b = 1}, c = {b = 2}}"},
    {T("[t]\na = {b = 1}\nc = 2"), "{t = {a = {b = 1}, c = 2}}"},
    {T("a.b = {c = 1}\na.d = {e = 2}"), "{a = {b = {c = 1}, d = {e = 2}}}"},
    {T("a = {b = [{c = 1}, {c = 2}]}"), "{a = {b = [{c = 1}, {c = 2}]}}"},
    {T("a = {b=1,c=2}# comment"), "{a = {b = 1, c = 2}}"},
    {T("a = {'' = 1}"), "{a = {'' = 1}}"},
    {T("a = [{b = [\n# comment\n1]}]"), "{a = [{b = [1]}]}"},
    {T("a = {b.c.d = 1, b.c.e = 2, b.f = 3}"), "{a = {b = {c = {d = 1, e = 2}, f = 3}}}"},
    // tables
    {T("[table]"), "{table = {}}"},
    {T("[table]\nkey1 = 1\n\n[table2]\nkey1 = 2"), "{table = {key1 = 1}, table2 = {key1 = 2}}"},
    {T("[dog.\"tater.man\"]\ntype.name = \"pug\""),
     "{dog = {'tater.man' = {type = {name = 'pug'}}}}"},
    {T("[a.b.c]"), "{a = {b = {c = {}}}}"},
    {T("[ d.e.f ]"), "{d = {e = {f = {}}}}"},
    {T("[ g .  h  . i ]"), "{g = {h = {i = {}}}}"},
    {T("[ j . \"ʞ\" . 'l' ]"), "{j = {'ʞ' = {l = {}}}}"},
    {T("[x.y.z.w]\n[x]"), "{x = {y = {z = {w = {}}}}}"},
    {T("[a.b]\nc = 1\n[a]\nd = 2"), "{a = {b = {c = 1}, d = 2}}"},
    {T("[fruit.apple]\n[animal]\n[fruit.orange]"),
     "{fruit = {apple = {}, orange = {}}, animal = {}}"},
    {T("name = 1\n[t]\nname = 2"), "{name = 1, t = {name = 2}}"},
    {T("[fruit]\napple.color = 1\napple.taste.sweet = true\n[fruit.apple.texture]\nsmooth = true"),
     "{fruit = {apple = {color = 1, taste = {sweet = true}, texture = {smooth = true}}}}"},
    {T("[a]\n[b]\n[a.c]\n[b.c]"), "{a = {c = {}}, b = {c = {}}}"},
    {T("[a]\nb.c = 1\n[a.d]\ne = 2"), "{a = {b = {c = 1}, d = {e = 2}}}"},
    {T("[\"\"]\na = 1"), "{'' = {a = 1}}"},
    {T("['a.b']\nc = 1\n[a.b]\nc = 2"), "{'a.b' = {c = 1}, a = {b = {c = 2}}}"},
    {T("[a]\n\n[a.b]\n"), "{a = {b = {}}}"},
    {T("  [a]\n  b = 1\n\t[a.c]\n\td = 2"), "{a = {b = 1, c = {d = 2}}}"},
    {T("[a.b.c]\nx = 1\n[a]\nb.y = 2"), "{a = {b = {c = {x = 1}, y = 2}}}"},
    {T("[a.b]\n[a.c]\n[a]\nx = 1"), "{a = {b = {}, c = {}, x = 1}}"},
    {T("[1.2]\n3 = 4"), "{1 = {2 = {3 = 4}}}"},
    {T("[a]\r\nb = 1\r\n"), "{a = {b = 1}}"},
    {T("[true]\n[1979-05-27]\n[inf]"), "{true = {}, 1979-05-27 = {}, inf = {}}"},
    {T("a.b = 1\n[a.c]\nd = 2"), "{a = {b = 1, c = {d = 2}}}"},
    {T("[a.b]\nx.y = 1\n[a.b.x.z]\nw = 2"), "{a = {b = {x = {y = 1, z = {w = 2}}}}}"},
    {T("[a]#c\n[b]\t#d\n"), "{a = {}, b = {}}"},
    // arrays of tables
    {T("[[a]]"), "{a = [{}]}"},
    {T("[[products]]\nname = \"Hammer\"\nsku = 738594937\n\n[[products]]  # "
       "empty\n\n[[products]]\nname = \"Nail\""),
     "{products = [{name = 'Hammer', sku = 738594937}, {}, {name = 'Nail'}]}"},
    {T("[[fruits]]\nname = \"apple\"\n[fruits.physical]\ncolor = "
       "\"red\"\n[[fruits.varieties]]\nname = \"red\"\n[[fruits.varieties]]\nname = "
       "\"granny\"\n[[fruits]]\nname = \"banana\"\n[[fruits.varieties]]\nname = \"plantain\""),
     "{fruits = [{name = 'apple', physical = {color = 'red'}, varieties = [{name = 'red'}, {name = "
     "'granny'}]}, {name = 'banana', varieties = [{name = 'plantain'}]}]}"},
    {T("[[a.b]]\nx = 1\n[[a.b]]\nx = 2"), "{a = {b = [{x = 1}, {x = 2}]}}"},
    {T("[[a]]\nb.c = 1\n[[a]]\nb.c = 2"), "{a = [{b = {c = 1}}, {b = {c = 2}}]}"},
    {T("[[a]]\n[a.b]\nx = 1\n[[a]]\n[a.b]\nx = 2"), "{a = [{b = {x = 1}}, {b = {x = 2}}]}"},
    {T("[a]\n[[a.b]]\n[[a.b]]"), "{a = {b = [{}, {}]}}"},
    {T("[[a]]\n[[a.b]]\n[[a.b.c]]\nx = 1\n[[a.b.c]]\n[[a]]"),
     "{a = [{b = [{c = [{x = 1}, {}]}]}, {}]}"},
    {T("[[ a . 'b' ]]\nx = 1"), "{a = {b = [{x = 1}]}}"},
    {T("[[a.b]]\n[a]\nx = 1"), "{a = {b = [{}], x = 1}}"},
    {T("[[a]]\n[b]\n[[a]]\n[a.c]"), "{a = [{}, {c = {}}], b = {}}"},
    {T("points = [ { x = 1, y = 2 }, { x = 7, y = 8 } ]\n[[more]]\nx = 3"),
     "{points = [{x = 1, y = 2}, {x = 7, y = 8}], more = [{x = 3}]}"},
    {T("[[\"a b\"]]\n[[\"a b\"]]"), "{'a b' = [{}, {}]}"},
    {T("[[a]]\n[a.b.c]\n[a.b]\nx = 1"), "{a = [{b = {c = {}, x = 1}}]}"},
    {T("[[a]]\n[[a]]\n[a.b]\n[[a.c]]\n[a.c.d]\n[[a.c]]"),
     "{a = [{}, {b = {}, c = [{d = {}}, {}]}]}"},
    {T("a.b = 1\n[[a.c]]\nd = 2\n[[a.c]]"), "{a = {b = 1, c = [{d = 2}, {}]}}"},
    {T("[[a]] # one\nb = 1 # two\n[[a]]\t# three"), "{a = [{b = 1}, {}]}"},
    // what RFC 3339 allows beyond the usual
    {T("a = 0000-01-01"), "{a = 0000-01-01}"},
    {T("a = 23:59:60"), "{a = 23:59:60}"},
    {T("a = 1990-12-31T23:59:60Z"), "{a = 1990-12-31T23:59:60+0}"},
    {T("a = 1990-12-31T15:59:60-08:00"), "{a = 1990-12-31T15:59:60-480}"},
    {T("a = 00:00:00.123456789"), "{a = 00:00:00.123456789}"},
    {T("a = 00:00:00.9999999999"), "{a = 00:00:00.999999999}"},
    {T("a = 0000-02-29T00:00:00.000000001+01:00"), "{a = 0000-02-29T00:00:00.000000001+60}"},
};

static void print_text(rn_sink out, rn_str text) {
    assert_ok(rn_sink_print(out, "'"));
    for (size_t i = 0; i < text.bytes; i++) {
        unsigned char c = (unsigned char)text.data[i];
        bool plain = c >= 0x20 && c != 0x7F && c != '\'' && c != '\\';
        assert_ok(rn_sink_print(out, plain ? "%c" : "\\x%02x", c));
    }
    assert_ok(rn_sink_print(out, "'"));
}

static void print_key(rn_sink out, rn_str key) {
    static const char bare[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t count = 0;
    while (count < key.bytes && memchr(bare, key.data[count], sizeof bare - 1))
        count++;
    if (key.bytes > 0 && count == key.bytes)
        assert_ok(rn_sink_write(out, key.data, key.bytes));
    else
        print_text(out, key);
    assert_ok(rn_sink_print(out, " = "));
}

static void print_time(rn_sink out, const rn_toml_value *value) {
    rn_toml_type type = rn_toml_type_of(value);
    rn_toml_time t;
    assert_ok(rn_toml_get_time(value, &t));
    if (type != RN_TOML_LOCAL_TIME)
        assert_ok(rn_sink_print(out, "%04d-%02d-%02d", t.year, t.month, t.day));
    if (type == RN_TOML_LOCAL_DATE) return;
    if (type != RN_TOML_LOCAL_TIME) assert_ok(rn_sink_print(out, "T"));
    assert_ok(rn_sink_print(out, "%02d:%02d:%02d", t.hour, t.minute, t.second));
    if (t.nanosecond) assert_ok(rn_sink_print(out, ".%09d", t.nanosecond));
    if (type == RN_TOML_OFFSET_DATETIME) assert_ok(rn_sink_print(out, "%+d", t.offset_minutes));
}

static void print_scalar(rn_sink out, const rn_toml_value *value) {
    rn_str text;
    int64_t integer;
    double number;
    bool boolean;
    switch (rn_toml_type_of(value)) {
    case RN_TOML_STRING:
        assert_ok(rn_toml_get_string(value, &text));
        print_text(out, text);
        break;
    case RN_TOML_INTEGER:
        assert_ok(rn_toml_get_integer(value, &integer));
        assert_ok(rn_sink_print(out, "%lld", (long long)integer));
        break;
    case RN_TOML_FLOAT:
        assert_ok(rn_toml_get_float(value, &number));
        assert_ok(rn_sink_print(out, "f%.17g", isnan(number) ? fabs(number) : number));
        break;
    case RN_TOML_BOOL:
        assert_ok(rn_toml_get_bool(value, &boolean));
        assert_ok(rn_sink_print(out, boolean ? "true" : "false"));
        break;
    default:
        print_time(out, value);
    }
}

static void print_value(rn_sink out, const rn_toml_value *value) {
    rn_toml_type type = rn_toml_type_of(value);
    if (type != RN_TOML_ARRAY && type != RN_TOML_TABLE) {
        print_scalar(out, value);
        return;
    }
    assert_ok(rn_sink_print(out, type == RN_TOML_ARRAY ? "[" : "{"));
    for (const rn_toml_value *item = rn_toml_first(value); item; item = rn_toml_next(item)) {
        if (item != rn_toml_first(value)) assert_ok(rn_sink_print(out, ", "));
        if (type == RN_TOML_TABLE) print_key(out, rn_toml_key_of(item));
        print_value(out, item);
    }
    assert_ok(rn_sink_print(out, type == RN_TOML_ARRAY ? "]" : "}"));
}

static void check_tree(const valid_case *c) {
    rn_toml *doc;
    rn_buffer out;
    if (rn_toml_parse((rn_str){c->text, c->bytes}, &rn_system_allocator, &doc) != RN_OK)
        fail_msg("<<%s>> was refused: %s", c->text, rn_last_error()->message);
    rn_buffer_init(&out, &rn_system_allocator, 1 << 20);
    print_value(rn_buffer_sink(&out), rn_toml_root(doc));
    if (!rn_str_equal((rn_str){out.data, out.bytes}, rn_str_from(c->tree)))
        fail_msg("<<%s>> is %s, but was read as %.*s", c->text, c->tree, (int)out.bytes, out.data);
    rn_buffer_free(&out);
    rn_toml_free(doc);
}

static void toml_reads_every_valid_document(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_tree(&cases[i]);
}

// Files come with either line end; what they mean does not change.
static void toml_reads_the_same_with_crlf_line_ends(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        size_t bytes = 0;
        if (strchr(cases[i].text, '\r')) continue;
        for (size_t at = 0; at < cases[i].bytes; at++) {
            if (cases[i].text[at] == '\n') text[bytes++] = '\r';
            text[bytes++] = cases[i].text[at];
        }
        text[bytes] = '\0';
        check_tree(&(valid_case){text, bytes, cases[i].tree});
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(toml_reads_every_valid_document),
        cmocka_unit_test(toml_reads_the_same_with_crlf_line_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
