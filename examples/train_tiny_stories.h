// train_tiny_stories.h — short stories for children, without end: story number i of a seed is
// always the same, and no two are likely to be alike.
//
// A story has a hero, a friend, somebody who cares for the hero, a place and a trait. A plot brings
// a trouble, attempts that fail, help, and an end; the trait of the first lines comes back in the
// last one. What is told is written in templates:
//
//     [a|b|c]   one of them, which may hold more of the same
//     {name}    a variable, whose value is a template; {^name} begins with a capital letter,
//               {a name} and {A name} with an article
//     <text>    speech, in quotation marks
//     #         a new paragraph
#ifndef RN_EXAMPLES_TRAIN_TINY_STORIES_H
#define RN_EXAMPLES_TRAIN_TINY_STORIES_H

#include <assert.h>
#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { STORY_BYTES = 4096, STORY_VARIABLES = 64 };

typedef struct story {
    char text[STORY_BYTES];
    size_t bytes;
    uint64_t random;
    struct {
        const char *name, *value;
    } variables[STORY_VARIABLES];
    size_t variable_count;
} story;

// ---- who and where ------------------------------------------------------------------------------

typedef struct pronouns {
    const char *he, *him, *his;
} pronouns;

static const pronouns story_pronouns[2] = {{"she", "her", "her"}, {"he", "him", "his"}};

static const char *const story_names[2][14] = {
    {"Lily", "Mia", "Anna", "Rosie", "Nora", "Ella", "Poppy", "Daisy", "Ruby", "Clara", "Hazel",
     "Ivy", "Molly", "Tilda"},
    {"Tom", "Ben", "Max", "Leo", "Finn", "Sam", "Oscar", "Toby", "Jack", "Hugo", "Milo", "Otto",
     "Pip", "Felix"},
};

typedef struct kind {
    const char *noun[2]; // of a girl, of a boy
    const char *hand, *hands, *home, *roof;
} kind;

static const kind story_kinds[] = {
    {{"girl", "boy"}, "hand", "hands", "a small house with a blue door", "house"},
    {{"girl", "boy"}, "hand", "hands", "a white cottage", "cottage"},
    {{"fox", "fox"}, "paw", "paws", "a cosy den", "den"},
    {{"rabbit", "rabbit"}, "paw", "paws", "a round burrow", "burrow"},
    {{"bear", "bear"}, "paw", "paws", "a warm cave", "cave"},
    {{"mouse", "mouse"}, "paw", "paws", "a tiny hole behind a stone", "hole"},
    {{"hedgehog", "hedgehog"}, "paw", "paws", "a nest of dry leaves", "nest"},
    {{"squirrel", "squirrel"}, "paw", "paws", "a hollow tree", "tree"},
    {{"otter", "otter"}, "paw", "paws", "a snug den", "den"},
    {{"badger", "badger"}, "paw", "paws", "a deep burrow", "burrow"},
    {{"kitten", "kitten"}, "paw", "paws", "a wooden shed", "shed"},
    {{"puppy", "puppy"}, "paw", "paws", "a red kennel", "kennel"},
    {{"duck", "duck"}, "wing", "wings", "a nest of soft feathers", "nest"},
    {{"frog", "frog"}, "hand", "hands", "an old teapot", "teapot"},
};

// Those who care for the hero.
static const struct {
    const char *noun;
    bool male;
} story_elders[] = {{"grandmother", false}, {"grandfather", true}, {"mother", false},
                    {"father", true},       {"aunt", false},       {"uncle", true}};

typedef struct place {
    const char *where, *area, *water;
    const char *spots[6];
} place;

static const place story_places[] = {
    {"at the edge of a quiet forest",
     "the forest",
     "stream",
     {"under the old oak tree", "behind the mossy rocks", "among the ferns", "by the fallen log",
      "beside the narrow path", "next to the blackberry bush"}},
    {"beside a wide blue lake",
     "the lake",
     "lake",
     {"among the tall reeds", "by the wooden pier", "behind the old boat", "on the sandy shore",
      "under the willow tree", "next to the big flat stone"}},
    {"in a small village by the sea",
     "the village",
     "sea",
     {"on the beach", "behind the fishing boats", "next to the lighthouse",
      "among the shells and stones", "under the long pier", "by the harbour wall"}},
    {"on top of a green hill",
     "the hill",
     "brook",
     {"by the stone wall", "under the apple tree", "in the long grass", "next to the windmill",
      "behind the sheep barn", "beside the wooden gate"}},
    {"on a small farm",
     "the farm",
     "pond",
     {"behind the red barn", "under the hay cart", "among the cabbages", "next to the old well",
      "by the duck pond", "beside the chicken house"}},
    {"at the foot of a snowy mountain",
     "the mountain",
     "river",
     {"under the tall pine trees", "behind a great grey rock", "next to the woodpile",
      "by the little bridge", "beside the goat path", "in front of the empty cabin"}},
    {"near a garden full of flowers",
     "the garden",
     "pond",
     {"under the rose bush", "behind the watering can", "among the pumpkins",
      "next to the garden gate", "beside the sunflowers", "by the stone bench"}},
    {"in a little town with crooked streets",
     "the town",
     "river",
     {"behind the bakery", "next to the fountain", "on the steps of the library",
      "beside the clock tower", "under the stone bridge", "by the market stalls"}},
};

// What the first lines say of the hero, and what the last one makes of it.
static const struct {
    const char *adjective, *open, *close;
} story_traits[] = {
    {"shy",
     "[{^he} was so shy that {he} hardly ever said a word.|Whenever somebody came by, {he} hid "
     "behind the nearest tree.]",
     "[And {hero} was not shy any more, at least not with {friend}.|From then on, {hero} said good "
     "morning to everyone {he} met.]"},
    {"curious",
     "[{^he} wanted to know everything about everything.|{^he} asked a hundred questions a day.]",
     "[That night {hero} fell asleep with a new question on {his} lips.|And {hero}, curious as "
     "ever, was already wondering what the next day would bring.]"},
    {"impatient", "[{^he} could not wait for anything.|For {him}, nothing was ever fast enough.]",
     "[After that, {hero} could wait a little longer than before.|<Good things take time,> said "
     "{hero}, who had never said such a thing before.]"},
    {"forgetful",
     "[{^he} forgot everything: {his} hat, {his} breakfast, even {his} own birthday.|{^he} tied "
     "knots in {his} scarf to remember things, and then {he} forgot the scarf.]",
     "[{hero} forgot many things later on, but never that day.|And for once, {hero} did not forget "
     "to say thank you.]"},
    {"cheerful",
     "[{^he} sang from morning till night.|Even on rainy days {he} had a song on {his} lips.]",
     "[All the way home, {hero} sang a song about it.|And that evening {hero} sang louder than "
     "ever.]"},
    {"clumsy",
     "[{^he} tripped over every root and every stone.|Hardly a day went by on which {he} did not "
     "fall over {his} own feet.]",
     "[On the way home {hero} tripped over {his} own feet, and they both laughed.|{hero} was as "
     "clumsy as ever, but {friend} did not mind at all.]"},
    {"dreamy",
     "[{^he} liked to lie in the grass and look at the clouds.|All day long {he} dreamed of "
     "faraway lands.]",
     "[That night {hero} dreamed of it all once more.|And when {hero} looked up, one of the clouds "
     "looked just like {friend}.]"},
    {"proud",
     "[{^he} thought that {he} needed no help from anyone.|{^he} liked to do everything alone.]",
     "[Now {hero} knew that even the proudest {kind} needs a friend.|And {hero} was proud of one "
     "thing most of all: a friend like {friend}.]"},
    {"stubborn",
     "[Once {he} had made up {his} mind, nobody could change it.|{^he} never gave up, not even "
     "when {he} should have.]",
     "[<I never give up,> said {hero}. <But with a friend it is easier.>|<You are as stubborn as a "
     "stone,> said {friend}, and {hero} took it as praise.]"},
    {"careful",
     "[{^he} always looked twice before {he} took a step.|{^he} never went out without an "
     "umbrella.]",
     "[It was a great adventure for such a careful {kind}.|And the careful {kind} went home, "
     "looking twice before every step.]"},
    {"lonely",
     "[{^he} had nobody to play with.|Every evening {he} talked to the moon, because there was "
     "nobody else.]",
     "[And {hero} was never lonely again.|That evening {hero} had so much to tell {friend} that "
     "the moon had to wait.]"},
    {"playful",
     "[{^he} could make a game out of anything.|There was no game that {he} did not know.]",
     "[By evening {hero} had made a new game out of it, and {friend} was very good at it.|Then the "
     "two of them played until the stars came out.]"},
    {"tiny",
     "[{^he} was the smallest {kind} for miles around.|{^he} was so small that people often did "
     "not see {him}.]",
     "[{hero} was still the smallest {kind} for miles around, but {he} felt as tall as a "
     "tree.|{hero} was as small as before, but nobody ever overlooked {him} again.]"},
    {"sleepy",
     "[{^he} could fall asleep anywhere, even standing up.|{^he} yawned before breakfast, and "
     "after breakfast {he} yawned again.]",
     "[Then {hero} yawned, curled up, and was asleep before anyone could say good night.|It had "
     "been a long day, and {hero} slept better than ever.]"},
};

// ---- things -------------------------------------------------------------------------------------

static const char *const story_colours[] = {"red",   "blue",   "green",  "yellow",
                                            "white", "purple", "orange", "silver"};
static const char *const story_toys[] = {"ball",    "kite",    "drum", "bell",    "hat", "scarf",
                                         "lantern", "whistle", "boat", "blanket", "cup", "ribbon"};
static const char *const story_light_things[] = {"kite", "ball", "hat", "scarf", "balloon"};
static const char *const story_foods[] = {"apple pie", "honey cake",  "loaf of warm bread",
                                          "plum tart", "pot of soup", "bag of roasted nuts",
                                          "pancake",   "cherry cake", "basket of strawberries"};
static const char *const story_small_ones[] = {"beetle", "bee",   "ladybird", "butterfly",
                                               "ant",    "snail", "sparrow",  "cricket"};
static const char *const story_plants[] = {"sunflower",      "bean plant",   "rose bush",
                                           "raspberry bush", "tomato plant", "vine"};
static const char *const story_broken_things[] = {"cup",    "vase", "lamp", "teapot",
                                                  "mirror", "bowl", "clock"};

// Something to build: what it is and what it is for.
static const struct {
    const char *noun, *purpose, *use;
} story_works[] = {
    {"boat", "to see the other side of the {water}", "they sailed across the {water} and back"},
    {"bridge", "to get across the {water} with dry feet",
     "they danced over the bridge, from one side to the other"},
    {"tower", "to look over the whole of {area}",
     "they sat on top of the tower and counted the stars"},
    {"hut", "to have a secret place of {his} own",
     "it rained, and they sat in the hut and did not get wet"},
    {"swing", "to fly as high as the birds", "they took turns on the swing until it was dark"},
};

// ---- plots --------------------------------------------------------------------------------------

// Beginnings. The hero, the place and the trait are told before the plot begins.
static const char *const story_openings[] = {
    "Once upon a time, there was {a trait} little {kind} named {hero}. {^he} lived in {home} "
    "{where}. {open}",
    "Once upon a time, {a trait} {kind} named {hero} lived in {home} {where}. {open}",
    "Once upon a time, in {home} {where}, there lived {a trait} {kind} called {hero}. {open}",
    "{^where}, in {home}, there lived {a trait} little {kind} called {hero}. {open}",
    "There was once {a trait} {kind} whose name was {hero}. {^his} home was {home} {where}. {open}",
    "{hero} was {a trait} little {kind} who lived in {home} {where}. {open}",
    "{hero} the {kind} lived in {home} {where}. [Everyone said that {he} was very {trait}.|{^he} "
    "was a very {trait} {kind}.] {open}",
};

// A plot's parts, one paragraph each. {try1} and {try2} are two different ones of its attempts.
typedef struct plot {
    const char *trouble, *effort, *help, *end;
    const char *attempts[7];
} plot;

static const plot story_plots[] = {
    // Something is lost.
    {.trouble = "[More than anything, {hero} loved {his} {toy}.|{hero} had {a toy} from {his} "
                "{elder} that {he} took everywhere.] But one {day}, [the {thing} was gone.|{he} "
                "could not find it.]",
     .effort = "{^try1} {^try2} [{hero} sat down and sighed.|A tear rolled down {his} cheek.|<Oh "
               "no,> said {hero}. <Where is my {thing}?>]",
     .help = "Just then {a fkind} named {friend} came by. [<I am good at finding things,> said "
             "{friend}. <Come with me.>|<Let us look for it together,> said {friend}. <Four eyes "
             "see more than two.>] They searched [high and low|all over {area}]. At last {friend} "
             "saw something {colour} {spot3}. It was the {thing}! [The wind had carried it there.|"
             "{hero} had left it there the day before.|A magpie had dropped it there.]",
     .end = "[<Thank you,> said {hero}. <I would never have found it alone.>|<You have found your "
            "{thing},> said {his} {elder}, <and a friend as well.>|From that day on, they shared "
            "the {toy}.]",
     .attempts = {"{he} looked {spot1}, but there was only a sleepy snail.",
                  "{he} searched {spot1} and found nothing but an old shoe.",
                  "{he} asked the ducks by the {water}, but they had not seen it.",
                  "{he} looked {spot2}, and then {he} looked there again, but in vain.",
                  "{he} turned over every stone {spot2}, but there was no {thing}.",
                  "{he} asked the old crow, but the crow only shook its head.",
                  "{he} emptied every box in the {roof}, but it was not there."}},
    // Something hangs in a tree.
    {.trouble = "One windy {day}, {hero} was playing with {his} new {flyer}. Suddenly the wind "
                "[caught it|tore it away] and carried it up, up, up, into the tallest tree.",
     .effort = "First {try1} Then {try2} [<What shall I do now?> said {hero}.|<This tree is too "
               "tall for me,> said {hero}.|{hero} looked up and wanted to cry.]",
     .help = "{A fkind} named {friend} [had seen it all.|came along.] [<If you stand on my "
             "shoulders, you can reach it,> said {friend}. So {hero} climbed up, wobbled once, "
             "wobbled twice, and stretched out {his} {hand}.|<I have a long rope,> said {friend}. "
             "They threw the rope over the branch and pulled, and the branch came down, lower and "
             "lower.|<There is a branch like a ladder on the other side,> said {friend}. Together "
             "they climbed, step by step.] And then {hero} held the {light} in {his} {hands}.",
     .end = "[<We did it!> they shouted.|<Two are taller than one,> said {friend} with a smile.] "
            "[That whole {day} they played with the {flyer}, far away from the tree.|Then {hero} "
            "gave the {light} to {friend}. <Now it is your turn,> {he} said.]",
     .attempts = {"{he} jumped as high as {he} could, but that was not high enough.",
                  "{he} threw a stick, but the stick got stuck as well.",
                  "{he} shook the tree, but only leaves fell down.",
                  "{he} tried to climb, but {he} slid down again.",
                  "{he} stood on an old bucket, but the bucket tipped over.",
                  "{he} asked the wind to blow once more, but the wind had gone to sleep.",
                  "{he} called the {light} by its name, but it did not have one."}},
    // Something good to eat is shared.
    {.trouble = "One {day}, {his} {elder} gave {him} {a food}. <This is all for me,> thought "
                "{hero}, and {he} went to find a quiet place to eat it.",
     .effort =
         "{^spot1}, {he} met {a fkind} named {friend}. [<That smells good,> said {friend}.|<I "
         "am so hungry,> said {friend}.] [But {hero} shook {his} head. <There is not enough "
         "for two,> {he} said and walked on.|But {hero} held it tight. <It is mine,> {he} "
         "said and hurried away.] {try1}",
     .help = "So {hero} [went all the way back|turned around and ran back]. [<I am sorry,> {he} "
             "said. <There is enough for two after all.>|<I was wrong,> {he} said. <It tastes of "
             "nothing when I eat alone.>] They sat down [side by side|in the sun] and shared the "
             "{food}, and now every bite was [delicious|a feast].",
     .end =
         "The next {day}, {friend} knocked at the door of the {roof} with {a food2}. <Today it is "
         "my turn,> {fhe} said. [That was the beginning of a long friendship.|They ate until they "
         "were full.]",
     .attempts =
         {"But when {he} sat down {spot2}, {he} kept thinking of {friend}'s sad eyes, and it "
          "did not taste good at all.",
          "But when {he} sat down {spot2}, the first bite was too hot, the second too cold, "
          "and the third one made {him} feel lonely.",
          "But {spot2} it was so quiet, and {he} felt so alone, that {he} could not eat.",
          "But {spot2} a strange feeling sat in {his} stomach. It was not hunger. It was "
          "shame."}},
    // A walk in the dark.
    {.trouble =
         "But {hero} had a secret: {he} was afraid of the dark. One evening {his} {elder} "
         "[asked {him} to fetch water from the {water}|needed wood for the fire|was ill, and "
         "somebody had to fetch the doctor]. [There was no moon that night.|Outside it was as "
         "black as ink.]",
     .effort =
         "{hero} took {a colour} lantern and went out. {^try1} {^try2} [{hero} walked a little "
         "faster.|{^his} knees were shaking.|Then the lantern went out.]",
     .help =
         "<Who is there?> whispered {hero}. <It is only me,> said a small voice. It was {a fkind} "
         "named {friend}. <I [am lost|cannot find my way home], and I am afraid of the dark.> <So "
         "am I,> said {hero}. [<Let us be afraid together.>|<But two who are afraid are braver "
         "than one.>] They [walked side by side|held on to each other], and step by step the "
         "night grew [smaller|friendlier].",
     .end =
         "[<Were you not afraid?> asked {his} {elder} when they came home.|At home {his} {elder} "
         "was waiting with hot milk. <Were you not afraid?> {ghe} asked.] <I was,> said {hero}, "
         "<but not alone.>",
     .attempts = {"something rustled {spot1}. It was only a hedgehog.",
                  "something hooted above {his} head. It was only an old owl.",
                  "something groaned {spot2}. It was only the wind in the branches.",
                  "two yellow eyes looked at {him}. It was only a cat.",
                  "something cold touched {his} nose. It was only a drop of rain.",
                  "something splashed in the {water}. It was only a fish.",
                  "a long black shape lay {spot1}. It was only {his} own shadow."}},
    // Something is built.
    {.trouble =
         "One {day}, {hero} decided to build {a work}. {^he} wanted {purpose}. [<That is too "
         "hard for you,> said {his} {elder}, but {hero} began at once.|<How hard can it be?> "
         "said {hero}.]",
     .effort = "First {try1} Then {try2} [<I give up,> said {hero} and threw {his} hat on the "
               "ground.|<It will never work,> sighed {hero}.]",
     .help =
         "{A fkind} named {friend} [had watched {him} from afar.|came along with a bag of "
         "tools.] [<It is a good plan,> said {friend}, <but it needs four {hands}.>|<The third "
         "time is the best time,> said {friend}. <May I help?>] One held and the other tied, one "
         "sawed and the other sang. [After three days|When the sun went down], the {work} was "
         "ready.",
     .end = "It was a little crooked, but it held. That evening {use}. [<I could not have done it "
            "alone,> said {hero}. <Nobody could,> said {friend}.|Nothing is too hard for two.]",
     .attempts = {"{he} built it of leaves, but the wind blew it away.",
                  "{he} built it of mud, but the rain washed it away.",
                  "{he} built it of straw, but a hungry goat ate it.",
                  "{he} built it of thin sticks, but it broke as soon as {he} touched it.",
                  "{he} built it of stones, but it fell down with a crash.",
                  "{he} built it of paper, but it got wet and fell apart."}},
    // A small one is saved and pays it back.
    {.trouble =
         "One {day}, {hero} heard a tiny voice {spot1}. <Help! Help!> it called. {A small} had "
         "fallen into the {water} and could not get out.",
     .effort =
         "First {try1} Then {he} laid a long branch over the water, and the {small} crawled "
         "out. <Thank you,> it said. <My name is {friend}. One day I will help you, too.> "
         "[{hero} laughed. <You are so small,> {he} said. <How could you ever help me?>|<That "
         "is very kind of you,> said {hero}, but {he} did not quite believe it.]",
     .help =
         "[A week later|Not long after], a thick fog came down on {area}. {hero} lost {his} way "
         "and sat down {spot2}. [It grew darker and darker.|The night was cold.] Then {he} heard "
         "a tiny voice. <Follow me,> it said. It was {friend}! Step by step the {small} led {him} "
         "home.",
     .end =
         "[<Who brought you home?> asked {his} {elder}. <A great friend,> said {hero}, <even if "
         "you can hardly see {fhim}.>|<You are so small,> said {hero}, <and yet nobody ever helped "
         "me more.>]",
     .attempts = {"{he} stretched out {his} {hand}, but the {small} was too far away.",
                  "{he} threw a leaf into the water, but the leaf sank.",
                  "{he} threw a rope, but it was too heavy for such a small creature.",
                  "{he} blew as hard as {he} could, but that only made waves.",
                  "{he} called for help, but nobody came.",
                  "{he} stepped into the water, but it was too deep."}},
    // A race is lost and won.
    {.trouble =
         "Every year there was a great race around {area}, and the prize was {a toy}. {hero} "
         "wanted to win it [more than anything|for {his} {elder}].",
     .effort =
         "<Ready, steady, go!> {hero} ran like the wind. {^try1} {^try2} Soon {he} was the first "
         "of all, and {he} could already see the finish.",
     .help =
         "Then {he} saw {a fkind} {spot3}. It was {friend}, who had [hurt {fhis} foot|fallen into "
         "a ditch]. [<Run on,> said {friend}. <You are winning!>|{hero} looked at the finish, and "
         "then {he} looked at {friend}.] <A prize is only a prize,> said {hero}, and {he} helped "
         "{friend} up. [Arm in arm they went on, step by step.|{^he} carried {friend} all the way "
         "to the finish.]",
     .end =
         "They were the last of all, but [everyone cheered as if they had won|nobody laughed, and "
         "everyone clapped]. [The winner gave them the {toy}. <You two should have it,> {whe} "
         "said.|And the winner came and shared the {toy} with them.]",
     .attempts = {"{he} jumped over the ditch and flew down the slope.",
                  "{he} passed the goat, who had stopped to eat the flowers.",
                  "{he} passed the twins, who were running the wrong way.",
                  "{he} splashed through the {water} without slowing down.",
                  "{he} passed the big dog, who was already out of breath."}},
    // A seed needs time.
    {.trouble =
         "One {day} in spring, {his} {elder} gave {him} a seed. <It is small now,> {ghe} said, "
         "<but wait and see.> {hero} planted it {spot1}.",
     .effort =
         "The next morning there was nothing to see. {^try1} {^try2} [<It will never grow,> said "
         "{hero}.|<I think it is only a stone,> said {hero}.]",
     .help =
         "{A fkind} named {friend} was sitting on the fence. [<You must give it time,> said "
         "{friend}. <Seeds are never in a hurry.>|<It is growing,> said {friend}. <You just "
         "cannot see it yet.>] So they [waited together|told each other stories]. It rained, and "
         "the sun came out, and it rained again. And one {day} there was a tiny green leaf.",
     .end =
         "By the end of summer, it was {a plant}, the biggest in {area}. {hero} gave {friend} the "
         "first seed of it. [<It is small now,> {he} said, <but wait and see.>|<For next year,> "
         "{he} said. <We will wait together.>]",
     .attempts = {"{he} sang to it, but it did not listen.",
                  "{he} gave it a bucket of water, but nothing happened.",
                  "{he} dug it up to look at it, and then {he} had to plant it again.",
                  "{he} sat next to it for a whole day, but nothing moved.",
                  "{he} told it to hurry up, but it took no notice.",
                  "{he} put {his} ear to the ground, but {he} heard nothing."}},
    // Something is broken, and the truth is told.
    {.trouble =
         "{^his} {elder} had {a colour} {broken} that {ghe} loved very much. One rainy {day}, "
         "{hero} ran around the table, and crash! There lay the {broken}, in a hundred pieces.",
     .effort = "{^try1} {^try2} But that night {he} could not sleep. [The secret was as heavy as a "
               "stone.|Again and again {he} heard the crash.]",
     .help =
         "In the morning {he} told it all to {friend}, {a fkind} who lived {spot2}. [<The truth is "
         "hard for a minute,> said {friend}, <but a lie is hard for ever.>|<Tell the truth,> said "
         "{friend}. <I will go with you.>] So {hero} went to {his} {elder}. <It was me,> {he} said "
         "very quietly. <I broke your {broken}, and I am sorry.>",
     .end =
         "[<I knew it already,> said {his} {elder}. <I was only waiting for you to tell me.>|<A "
         "{broken} is only a {broken},> said {his} {elder}. <But the truth is worth more.>] Then "
         "the three of them glued the pieces together. One was missing, and through the hole the "
         "light fell like a little star.",
     .attempts = {"{he} hid the pieces {spot1}.", "{he} swept the pieces under the carpet.",
                  "{he} told {his} {elder} that it was the wind.",
                  "{he} said that the cat had done it.", "{he} put a cloth over the empty place.",
                  "{he} ran out and hid {spot3} until it was dark."}},
    // The moon in the water.
    {.trouble =
         "One clear night, {he} saw something round and bright in the {water}. It was the moon! "
         "[<Oh dear,> said {hero}. <The moon has fallen in.>|<Somebody must help the moon,> "
         "thought {hero}, <or it will be dark for ever.>]",
     .effort =
         "First {try1} Then {try2} [Each time the moon broke into a thousand pieces.|The moon "
         "only trembled and stayed where it was.|<Hold on!> called {hero}. <I will save you!>]",
     .help =
         "The noise woke {a fkind} named {friend}, who lived {spot2}. <Why are you so wet?> asked "
         "{friend}. <I am saving the moon,> said {hero}. {friend} did not laugh. {^fhe} only "
         "pointed up with {fhis} {fhand}. High above the trees hung the moon, round and dry. "
         "[<How did it get up there so fast?> asked {hero}.|<You did it!> said {friend}. <It is "
         "back in the sky.>]",
     .end =
         "[<If it falls down again, call me,> said {friend}. <I will bring a bigger net.>|The two "
         "of them lay down in the grass and looked up for a long time.|<It looks happy,> said "
         "{hero}. <It has somebody who looks after it,> said {friend}.]",
     .attempts = {"{he} tried to catch it with a net, but it slipped through.",
                  "{he} tried to scoop it up with a bucket, but the bucket held only water.",
                  "{he} threw a rope and told the moon to hold on, but the moon did not.",
                  "{he} waded in up to {his} chin, but it was always one step ahead.",
                  "{he} reached for it with a long stick, but the stick went right through.",
                  "{he} tried to lure it with a piece of cheese, but only a fish came."}},
    // A present.
    {.trouble = "It was the birthday of {his} {elder}, and {hero} had no present. <I will make one "
                "myself,> {he} said.",
     .effort =
         "First {try1} Then {try2} [The day was almost over, and {hero} still had nothing.|Now "
         "it was late, and {his} {hands} were empty.]",
     .help =
         "Sadly {he} sat down {spot1}. There {friend} the {fkind} found {him}. [<Give something "
         "that does not burn and does not get wet,> said {friend}. <Give a song.>|<What does your "
         "{elder} like best of all?> asked {friend}. {hero} thought about it. <Songs,> {he} "
         "said.] So they made up a song about {a colour} bird that flies around the world and "
         "comes back home.",
     .end =
         "In the evening they stood in front of the {roof} and sang. <That is the best present I "
         "ever had,> said {his} {elder}, [and {ghis} eyes were shining.|and they had to sing it "
         "again and again.]",
     .attempts = {"{he} picked flowers {spot2}, but a goat ate them all.",
                  "{he} baked a cake, but it burned as black as coal.",
                  "{he} painted a picture, but the rain washed the colours away.",
                  "{he} knitted a scarf, but it was only long enough for a mouse.",
                  "{he} gathered berries, but {he} ate them on the way home.",
                  "{he} carved a spoon, but it broke in two."}},
    // A new neighbour.
    {.trouble =
         "One {day}, {a fkind} named {friend} moved in {spot1}. {hero} wanted to say hello, but "
         "{he} did not know how. <What if {fhe} does not like me?> thought {hero}.",
     .effort =
         "So every night {he} secretly left something at {friend}'s door. First {try1} Then "
         "{try2} Each morning {friend} [looked around in surprise|smiled and took it inside].",
     .help =
         "On the third night, {hero} [tripped over a bucket|sneezed], and the door opened. <So it "
         "is you!> said {friend}. [<I wanted to say thank you, but I did not know to whom.>|"
         "<Please stay. I am new here, and I do not know anyone.>] {hero} [wanted to run away, but "
         "{friend} was smiling|was red up to the ears], and then they both began to laugh.",
     .end =
         "{friend} made tea, and they talked [until the sun came up|about everything under the "
         "sun]. [Now there are two cups on the table every evening.|<Every friend was a stranger "
         "once,> said {his} {elder}.]",
     .attempts = {"it was {a food}.", "it was a bunch of flowers.",
                  "it was {a toy} with a bow around it.", "it was a round white stone.",
                  "it was a feather, as light as snow.",
                  "it was a map of {area}, drawn by {himself}."}},
};

// ---- telling ------------------------------------------------------------------------------------

#define STORY_PICK(s, list) story_draw((s), sizeof(list) / sizeof *(list))

// A number below `count`: splitmix64.
static inline size_t story_draw(story *s, size_t count) {
    uint64_t z = s->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (size_t)((z ^ z >> 31) % count);
}

static inline void story_set(story *s, const char *name, const char *value) {
    assert(s->variable_count < STORY_VARIABLES);
    s->variables[s->variable_count].name = name;
    s->variables[s->variable_count++].value = value;
}

static inline const char *story_get(const story *s, const char *name, size_t bytes) {
    for (size_t i = 0; i < s->variable_count; i++)
        if (strlen(s->variables[i].name) == bytes && !memcmp(s->variables[i].name, name, bytes))
            return s->variables[i].value;
    assert(!"a template names a variable that there is");
    return "";
}

static inline void story_put(story *s, char c) {
    assert(s->bytes + 1 < sizeof s->text);
    s->text[s->bytes++] = c;
    s->text[s->bytes] = 0;
}

static inline void story_expand(story *s, const char *at, const char *end);

static inline void story_tell(story *s, const char *template) {
    story_expand(s, template, template + strlen(template));
}

// Behind the bracket that closes the one before `at`; *out_bars: how many `|` stand between them.
static inline const char *story_close(const char *at, size_t *out_bars) {
    size_t depth = 1;
    for (*out_bars = 0;; at++) {
        assert(*at);
        if (*at == '[') depth++;
        if (*at == '|' && depth == 1) ++*out_bars;
        if (*at == ']' && --depth == 0) return at + 1;
    }
}

// `at` is behind the opening bracket.
static inline const char *story_choose(story *s, const char *at) {
    size_t bars, depth = 0;
    const char *end = story_close(at, &bars), *begin = at;
    size_t chosen = story_draw(s, bars + 1);
    for (; at < end - 1 && (depth > 0 || *at != '|' || chosen-- > 0); at++) {
        depth += (*at == '[') - (size_t)(*at == ']');
        if (*at == '|' && depth == 0) begin = at + 1;
    }
    story_expand(s, begin, at);
    return end;
}

// Makes room for an article in front of what was told from `begin` on.
static inline void story_tell_article(story *s, size_t begin, bool capital) {
    const char *article = strchr("aeiou", s->text[begin]) ? "an " : "a ";
    size_t bytes = strlen(article), told = s->bytes - begin;
    for (size_t i = 0; i < bytes; i++)
        story_put(s, ' ');
    memmove(s->text + begin + bytes, s->text + begin, told);
    memcpy(s->text + begin, article, bytes);
    if (capital) s->text[begin] = 'A';
}

// `at` is behind the opening brace.
static inline const char *story_recall(story *s, const char *at) {
    const char *end = strchr(at, '}'), *name = at;
    bool capital = *at == '^', article = (*at == 'a' || *at == 'A') && at[1] == ' ';
    name += capital ? 1 : article ? 2 : 0;
    size_t begin = s->bytes;
    story_tell(s, story_get(s, name, (size_t)(end - name)));
    if (article) story_tell_article(s, begin, *at == 'A');
    if (capital) s->text[begin] = (char)toupper((unsigned char)s->text[begin]);
    return end + 1;
}

static inline void story_expand(story *s, const char *at, const char *end) {
    while (at < end) {
        char c = *at++;
        if (c == '[')
            at = story_choose(s, at);
        else if (c == '{')
            at = story_recall(s, at);
        else if (c == '#')
            story_put(s, '\n'), story_put(s, '\n');
        else
            story_put(s, c == '<' || c == '>' ? '"' : c);
    }
}

// ---- casting ------------------------------------------------------------------------------------

static inline void story_cast_hero(story *s, bool male, size_t number) {
    const kind *k = &story_kinds[number];
    const pronouns *p = &story_pronouns[male];
    story_set(s, "hero", story_names[male][STORY_PICK(s, story_names[0])]);
    story_set(s, "kind", k->noun[male]);
    story_set(s, "he", p->he);
    story_set(s, "him", p->him);
    story_set(s, "his", p->his);
    story_set(s, "himself", male ? "himself" : "herself");
    story_set(s, "hand", k->hand);
    story_set(s, "hands", k->hands);
    story_set(s, "home", k->home);
    story_set(s, "roof", k->roof);
}

// Another name, another kind, and mostly other pronouns: that keeps apart who is meant.
static inline void story_cast_friend(story *s, bool hero_male, size_t hero_kind) {
    size_t kinds = sizeof story_kinds / sizeof *story_kinds;
    bool male = story_draw(s, 5) == 0 ? hero_male : !hero_male;
    const kind *k = &story_kinds[(hero_kind + 2 + story_draw(s, kinds - 3)) % kinds];
    const char *name, *hero = story_get(s, "hero", 4);
    do
        name = story_names[male][STORY_PICK(s, story_names[0])];
    while (name == hero);
    story_set(s, "friend", name);
    story_set(s, "fkind", k->noun[male]);
    story_set(s, "fhe", story_pronouns[male].he);
    story_set(s, "fhim", story_pronouns[male].him);
    story_set(s, "fhis", story_pronouns[male].his);
    story_set(s, "fhand", k->hand);
}

static inline void story_cast_elder(story *s) {
    size_t elder = STORY_PICK(s, story_elders);
    const pronouns *p = &story_pronouns[story_elders[elder].male];
    story_set(s, "elder", story_elders[elder].noun);
    story_set(s, "ghe", p->he);
    story_set(s, "ghis", p->his);
    story_set(s, "whe", story_pronouns[story_draw(s, 2)].he); // whoever wins a race
}

// A different one each time: the list is walked from a random place in random steps.
static inline void story_set_several(story *s, const char *const *names, size_t name_count,
                                     const char *const *list, size_t count) {
    const char *left[8];
    assert(count <= 8 && name_count <= count);
    memcpy(left, list, count * sizeof *left);
    for (size_t i = 0; i < name_count; i++) {
        size_t drawn = story_draw(s, count);
        story_set(s, names[i], left[drawn]);
        left[drawn] = left[--count];
    }
}

static inline void story_choose_place(story *s) {
    static const char *const names[] = {"spot1", "spot2", "spot3"};
    const place *p = &story_places[STORY_PICK(s, story_places)];
    story_set(s, "where", p->where);
    story_set(s, "area", p->area);
    story_set(s, "water", p->water);
    story_set_several(s, names, 3, p->spots, 6);
    story_set(s, "day", story_draw(s, 2) ? "morning" : "afternoon");
}

static inline void story_choose_things(story *s) {
    size_t work = STORY_PICK(s, story_works), food = STORY_PICK(s, story_foods);
    size_t foods = sizeof story_foods / sizeof *story_foods;
    story_set(s, "colour", story_colours[STORY_PICK(s, story_colours)]);
    story_set(s, "thing", story_toys[STORY_PICK(s, story_toys)]);
    story_set(s, "light", story_light_things[STORY_PICK(s, story_light_things)]);
    story_set(s, "toy", "{colour} {thing}");
    story_set(s, "flyer", "{colour} {light}");
    story_set(s, "food", story_foods[food]);
    story_set(s, "food2", story_foods[(food + 1 + story_draw(s, foods - 1)) % foods]);
    story_set(s, "small", story_small_ones[STORY_PICK(s, story_small_ones)]);
    story_set(s, "plant", story_plants[STORY_PICK(s, story_plants)]);
    story_set(s, "broken", story_broken_things[STORY_PICK(s, story_broken_things)]);
    story_set(s, "work", story_works[work].noun);
    story_set(s, "purpose", story_works[work].purpose);
    story_set(s, "use", story_works[work].use);
}

static inline const plot *story_choose_plot(story *s) {
    static const char *const names[] = {"try1", "try2"};
    const plot *p = &story_plots[STORY_PICK(s, story_plots)];
    size_t attempts = 0;
    while (attempts < 7 && p->attempts[attempts])
        attempts++;
    story_set_several(s, names, 2, p->attempts, attempts);
    return p;
}

// Story `number` of `seed`, as NUL-terminated text.
static inline void story_make(story *s, uint64_t seed, uint64_t number) {
    memset(s, 0, offsetof(story, variables));
    s->variable_count = 0;
    s->random = seed * 0xd1342543de82ef95u + number;
    s->random = (uint64_t)story_draw(s, SIZE_MAX); // neighbours begin far from each other
    bool male = story_draw(s, 2);
    size_t hero = STORY_PICK(s, story_kinds), trait = STORY_PICK(s, story_traits);
    story_cast_hero(s, male, hero);
    story_cast_friend(s, male, hero);
    story_cast_elder(s);
    story_choose_place(s);
    story_choose_things(s);
    story_set(s, "trait", story_traits[trait].adjective);
    story_set(s, "open", story_traits[trait].open);
    const plot *p = story_choose_plot(s);
    story_tell(s, story_openings[STORY_PICK(s, story_openings)]);
    const char *parts[] = {" ", p->trouble, "#", p->effort, "#", p->help, "#", p->end, " "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        story_tell(s, parts[i]);
    story_tell(s, story_traits[trait].close);
}

#endif
