"""The words and patterns by which `statements` tells what somebody says of themselves from talk. English."""

from __future__ import annotations

import re


def _listed(text: str) -> frozenset[str]:
    return frozenset(text.split())


VAGUE = _listed(
    """
    amazing awesome great good nice cool wonderful fantastic incredible beautiful lovely special powerful inspiring
    rewarding fun exciting excited happy glad thankful grateful blessed proud love loved loving like liked enjoy
    enjoyed enjoying feel feeling feels felt feelings think thinking thought know knew knowing believe hope hoping hoped
    wish want wanted wanting try trying tried start started starting keep keeping kept help helps helped helping support
    supportive supporting supports important importance matter matters mean means meant way ways time times day days
    moment moments experience experiences journey life lives world people person everyone stuff bit big small little
    long short hard tough difficult easy really totally definitely absolutely truly super pretty sure wow yeah yes
    thanks appreciate appreciated care caring kind kindness positive positivity strength strong brave courage
    encouraging encouragement encouraged motivated motivation motivating inspire inspired inspires inspiration growth
    grow growing challenge challenges challenging dream dreams goal goals joy happiness peace peaceful calm calming
    relax relaxing stress stressed difference making reminder reminded reminds reminder surrounded share shared sharing
    see seeing seen saw look looking looks heard hear hearing talk talking talked chat chatting tell telling words
    agree understand understanding touch catch catching best better amazed thrilled stoked pumped glad nervous
    passion passionate create created creating creativity creative meaningful new next step steps forward wait awesome
    worth worthwhile finally soon today lately recently going getting come coming back take taking took work working
    works worked chance opportunity opportunities able learn learning learned memory memories cherish priceless
    connection connected connect connecting together others safe real reality possible comfort comforting gonna wanna
    honest honestly guess say saying said speaking live living need needs needed whole heart soul mind deep deeply
    question questions help issue issues problem stuff sense understandable example code implement correctly properly
    fulfilled fulfilling liberated empowered empowering empower content authentic voice resilience resilient optimistic
    hopeful determined determination focus focused focusing purpose community communities acceptance accepted accepting
    accept respect effort efforts impact progress key essential crucial vital valued appreciation gratitude cherished
    self ourselves true free freedom trust rely back backs side hands eye eyes face smile smiles energy vibe vibes
    spirit blast pleasure treat honor honour lucky blessing perspective perspectives mindset attitude outlook control
    wonders word lots tons bunch couple kinds types ready busy crazy wild super hectic intense quite
    rollercoaster roller
    coaster ride adventure story stories funny everywhere nowhere somewhere journey challenge chance epic lit sick rad
    options option enlightening uplifting heartwarming thrilling satisfying gratifying unbelievable enjoyable
    eye-opening mind-blowing refreshing nice neat sweet stunning gorgeous insane unreal unforgettable emotional
    proud scary surreal magical breath fresh air
    """
)
"""Words that many sentences hold and that say little: a sentence of these alone is talk."""

OPENING = re.compile(
    r"^(?:(?:hey|hi|hello|yeah|yep|yes|yup|yay|no|nope|nah|oh|ah|aw+|wow|whoa|well|so|ok|okay|right|sure|sorry"
    r"|haha|hmm"
    r"|actually|anyway|anyways|btw|by the way|also|plus|and|but|thanks|thank you|thx|congrats|absolutely|definitely"
    r"|totally|exactly|of course|for sure|agreed|true|guess what|you know|honestly|luckily|fortunately|unfortunately"
    r"|speaking of which|in fact|as for me|to be honest|not much|same here|since (?:we|our|I) last \w+(?: \w+)?"
    r"|since we (?:\w+ )?(?:spoke|talked|chatted|met|caught up)(?: last)?|since (?:the|our) last (?:chat|talk|time)"
    r"|woah|aww+|haha|on (?:another|a (?:different|side|lighter|brighter|positive|related|happier|more \w+)) note"
    r"|however"
    r"|nonetheless|in other news|other than that|apart from that|like I said|as I said|as you know)"
    r"(?:\s+(?:so much|a lot|again|there|all|mate|man|dude|buddy|bro|actually))?\s*(?:[,!.:–—-]+\s*|\s+(?=I\b|I['’]"
    r"|[Mm]y\b|[Ww]e\b)))+",
    re.IGNORECASE,
)
CONJUNCTION = re.compile(r"^(?:and|but|so|plus|also|then|hopefully|best of all|now)\b,?\s+(?=\w)", re.IGNORECASE)
ENDS_OPEN = re.compile(
    r"\b(?:it|them|him|her|this|that|those|these|one|ones|there|so|a few|some|do|did|too|them all|all that|either"
    r"|both)"
    r"(?: (?:too|all|again|now|either|as well|together|before|soon|yet|then))?[.!…]*$",
    re.IGNORECASE,
)
SAYING = re.compile(
    r"\b(?:the best thing (?:ever|about)|is (?:so |really |super |absolutely )?(?:key|essential|crucial|important"
    r"|vital|awesome|amazing|everything)"
    r"|something (?:else|special)|worth it|more than ever|the (?:real|hard) (?:deal|work)|since we last)\b",
    re.IGNORECASE,
)
ASPIRING = re.compile(
    r"\b(?:motivat\w+|inspir\w+|strength|stress\w*|de-?stress|emotions?|headspace|impact|positive|dreams?|voice|grinding"
    r"|make a (?:change|difference)|makes? me (?:feel|happy|smile)|mental health|my (?:head|mind|soul)|gonna be"
    r"|believe (?:that|in)|valued|each other)\b",
    re.IGNORECASE,
)
"""Moods and aspirations: what holds nothing else is talk."""
WE_ALONE = re.compile(r"\b(?:we|us|our|ours|ourselves)\b", re.IGNORECASE)
HABIT = re.compile(r"\b(?:usually|often|every|always|each|once a|twice a|tradition|together)\b", re.IGNORECASE)
ATTACHED = re.compile(r"\[(?:image|photo|attachment|video|audio|file)\b[^\]]*\]")
ARROWS = re.compile(r"\s*(?:->|=>|→)+[-=>\s\d,.]*$")
QUESTION_TAIL = re.compile(
    r"(?:,|;|\s[-–—])\s+(?:(?:and|so|but|or|then|also|maybe|perhaps|now)\s+)*"
    r"(?:can|could|would|will|do|does|did|should|shall|is|are|was|what|how|which|where|why|when|who|any|maybe"
    r"|right)\b"
    r"(?=[^?]*\?\s*$)",
    re.IGNORECASE,
)
REQUEST_TAIL = re.compile(
    r",?\s+(?:and |but |so )+(?:I(?:['’]m| am)? (?:need (?:some |your )?(?:help|advice|guidance)|not sure"
    r"|wondering|having trouble"
    r"|struggling|want to make sure|would like (?:to know|some|your)|['’]d like (?:to know|some|your))"
    r"|I['’]d (?:like to know|appreciate)|need (?:some |your )?help)\b.*$",
    re.IGNORECASE,
)
NEWS = re.compile(
    r"^(?:I(?:['’]ve)? )?(?:got|have) (?:some )?(?:(?:great|good|big|exciting|awesome|amazing|cool|bad"
    r"|sad) )?news(?: to share| for you)?\s*[-–—:,!.]+\s*",
    re.IGNORECASE,
)
FRAGMENT = re.compile(
    r"\b(?:huge|big|total|massive) fan[.!]*$|\bit looks\b|\bcheers for asking\b"
    r"|^(?:[Ee]specially|[Pp]articularly|[Ee]ven) (?:when|if|though)\b"
    r"|^(?:(?:[Aa]fter|[Bb]efore|[Uu]ntil|[Ll]ike) (?:that|this(?! (?:year|month|week|spring|summer|autumn|fall"
    r"|winter|season|semester))|then|I said)\b"
    r"|I (?:do|did|have|am|will|can|would)\b\s*[-–—,.!]"
    r"|[Mm]y (?:(?!(?:is|are|was|were|has|have|had|will|\w+ed)\b)[\w]+ )*(?!(?:is|are|was|were|has|have|had|will"
    r"|\w+ed)\b)\w+,(?!.*\b(?:I|is|are|was|were|has|have|had|will|\w+ed)\b))",
)
ASKING = re.compile(
    r"^(?:can|could|would|will|do|does|did|should|have you|are you|is (?:it|there|this|that)|what|how|why|where"
    r"|who|which"
    r"|let me know|tell me|show me|help me|give me|take a look|check out|check this|look at|here['’]s|here is"
    r"|here are|i need (?:some |your )?(?:help|advice)"
    r"|i(?:['’]m| am) not sure|i['’]d (?:like to know|appreciate)|i (?:was )?wonder|i(?:['’]m| am) wondering"
    r"|please\b|maybe)\b",
    re.IGNORECASE,
)
TALK = re.compile(
    r"\b(?:(?:so |really |super )?(?:proud|happy|excited|glad|sorry|stoked|pumped|thrilled|impressed) (?:of"
    r"|for) (?:you|ya|u|y['’]all)"
    r"|can(?:['’]t|not) (?:wait to (?:hear|see (?:you|what|how|it|your|more))|agree more|imagine)"
    r"|(?:talk|speak|see|chat) (?:to )?(?:you|ya|u) (?:soon|later|then)|keep (?:me|you|ya) (?:posted|updated)"
    r"|take care"
    r"|(?:totally |completely |definitely )?(?:i )?agree\b|couldn['’]t agree|means (?:a lot|so much|the world)"
    r"|mean (?:a lot|so much)"
    r"|good luck|have fun|no problem|no worries|glad to (?:hear|help)|happy to (?:hear|help)|hope (?:you|it|that"
    r"|everything|all|this|they)"
    r"|i(?:['’]m| am) (?:here for|off to|sure|curious|all ears|in!|fine|good|okay"
    r"|doing (?:well|great|good|ok|okay|fine|alright))"
    r"|i(?:['’]m| am|['’]ve been) (?:(?:so|really|truly|very|super|just|always|also|incredibly|extremely|definitely"
    r"|forever) )*"
    r"(?:glad|grateful|thankful|blessed|lucky|honou?red|sorry|happy to hear|proud of (?:how|what|my(?:self)?"
    r"|the progress))"
    r"|i (?:appreciate|understand|know (?:what|how|that|it)|bet|guess|see|hear|get (?:it|that|what)|wish|promise"
    r"|swear|mean|feel (?:you|like|that|so|really|blessed|lucky|great|good|proud|happy))\b"
    r"|i['’]ll (?:let|keep|check (?:it|that|them|those)|try (?:it|that)|give (?:it|that)|look into|do my best"
    r"|definitely|be sure|make sure|take (?:that|your)|remember|send|share|show|tell)\b"
    r"|i['’]d love (?:to (?:hear|see|know|join|try|check|chat|help|come|meet)|that|it|some)"
    r"|i (?:really |totally |also )?(?:love|like) (?:that|it|this|how|your|you|the (?:idea|sound|look|color|way))"
    r"|(?:sounds|looks) (?:like|great|good|fun|amazing|awesome))",
    re.IGNORECASE,
)
YOU = re.compile(r"\b(?:you|your|yours|yourself|ya|u|y['’]all|you['’]\w+)\b", re.IGNORECASE)
SELF = re.compile(r"\bI\b|\bI['’]|\b(?:my|me|mine|myself|we|our|ours|us)\b|\bwe['’]", re.IGNORECASE)
SUBJECT = re.compile(
    r"^(?:(?:after|when|while|since|before|during|as|last|this|next|yesterday|today|tomorrow|on|in|at|for|one"
    r"|recently|lately|"
    r"currently|right now|now|a|two|three|it['’]s been|every|because|although|though|even|besides"
    r"|apart)\b[^.?!]{0,80}?[,\s]\s*)?"
    r"(?:I\b|I['’]|my\b|we\b|we['’]|our\b|both (?:me|of us)|me and)",
    re.IGNORECASE,
)
DANGLING = re.compile(
    r"^(?:it|that|this|these|those|they|them|he|she|him|her|his|their|its|there|here|such|then|both|one|some"
    r"|which|who|what"
    r"|it['’]\w+|that['’]\w+|they['’]\w+|he['’]\w+|she['’]\w+|there['’]\w+)\b",
    re.IGNORECASE,
)
PRONOUN = re.compile(
    r"\b(?:it|it['’]s|them|him|they|he|she|those|these|they['’]re|he['’]s|she['’]s|there|that|this|her|his|their"
    r"|its)\b",
    re.IGNORECASE,
)
ELLIPTIC = re.compile(
    r"^(?:Just |Recently |Also |Currently |Still |Finally |Actually )*(?:Gonna|Been|Got|Had|Went|Took|Made"
    r"|Started|Finished|Joined"
    r"|Signed up|Planning|Trying to|Working on|Thinking (?:of|about)|Looking (?:for|into|forward)|Researching"
    r"|Preparing|Training"
    r"|Hoping to|Learning)\b"
)
PREFERENCE = re.compile(
    r"\b(?:I|we) (?:really |absolutely |also |still |just |always |totally |both |kinda )*(?:love|like|enjoy"
    r"|prefer|adore|hate|dislike|can['’]t stand)\b"
    r"|\bmy (?:all[- ]time )?(?:favou?rite|go-to|fave)\b|\b(?:favou?rite|fave)\b[^.]{0,40}\bis\b"
    r"|\b(?:I['’]m|I am|I['’]ve (?:always )?been) (?:(?!\w+ing )\w+ ){0,3}(?:fan of|into"
    r"|obsessed with|crazy about|hooked on|passionate about|allergic to|keen on|fond of|interested in)\b"
    r"|\bI['’]ve always (?:loved|enjoyed|liked|wanted|preferred)\b",
    re.IGNORECASE,
)
DECISION = re.compile(
    r"\b(?:I|we)(?:['’]ve| have)? (?:just |finally |also |already |recently |both )*(?:decided|chosen|chose"
    r"|picked (?!up|out|off)|opted|settled on|agreed (?:to|on|that)|made up my mind|committed to)\b"
    r"|\b(?:I['’]m|we['’]re|I am) (?:gonna go with|going (?:with|for))\b",
    re.IGNORECASE,
)
LESSON = re.compile(
    r"\b(?:I|we)(?:['’]ve| have)? (?:just |finally |also |really |recently |quickly )*(?:learn(?:ed|t) (?:that"
    r"|how|the|to|a|not)|reali[sz]ed)\b"
    r"|\blessons? (?:learn|I|we|is|was)|\btaught me\b",
    re.IGNORECASE,
)
ALL_OF_US = re.compile(
    r"\bwe (?:all|can|could|should|must|need|have to|gotta|never|always|don['’]t|as)\b|\bour (?:lives|world|society"
    r"|future)\b",
    re.IGNORECASE,
)
"""A "we" that is everybody, or that urges."""
DEICTIC = re.compile(
    r"\b(?:this|these|those)\s+(?!(?:year|month|week|weekend|morning|afternoon|evening|summer|winter|spring|fall"
    r"|autumn|past|coming"
    r"|time|season|semester|january|february|march|april|may|june|july|august|september|october|november|december"
    r"|christmas"
    r"|\w*day)\b)(?!(?:\w+ ){1,3}(?:called|named|where|who|which|that|with a|from)\b)\w+"
    r"|\bthat (?:one|same|very|whole|particular|kind|sort|final|moment|feeling|experience|game|trip|event|place|group"
    r"|thing"
    r"|pic|pics|picture|photo|shot|idea|dream)\b"
    r"|\bthe (?:ones?|same|other one|latter|former|above|following)\b|\b(?:go(?:ing|ne)?|went|been|get(?:ting)?"
    r"|got) through that\b"
    r"|\b(?:another|that|this|each|every|working on|writing|reading) one\b|\b(?:some|any)thing similar\b"
    r"|\b(?:one|some) of (?:them|those|these)\b|\bsome of the (?:guys|others"
    r"|folks)\b"
    r"|\b(?:a few|some|many|several|two|three) (?:more|others?)(?= (?:last|this|in|on|at|today|yesterday|recently)\b"
    r"|[.!,])"
    r"|\b(?:been|be|was|have|had|got|need|want|found|bought|made|get) one\b(?! (?:of|day|time|\w+ing)\b)"
    r"|^(?:at|during|after|before|for|with|from|in|on) the (?!day|week|month|year|end|morning|evening|past|future"
    r"|meantime|summer|winter)"
    r"\w+,"
    r"|\b(?:made|at|during|after|before|of|for|about|from) the (?:event|project|trip|show|party|meeting|thing|place"
    r"|competition)"
    r"\b(?= (?:a|an|and|but|so|was|is)\b|[.,;!]|$)"
    r"|\bwe can (?:both|all)\b|\bboth of us\b|\b(?:days?|weeks?|weekends?|months?|years?) later\b(?! (?:this|in)\b)"
    r"|\b(?:as|like) (?:that|this|those|these)\b|\bin (?:that|this) way\b|\bdid (?:it|that|so)\b|\bover there\b"
    r"|\b(?:brainstorming|considering|trying|making|getting|found|made|got|bought|have|has|had) some to\b",
    re.IGNORECASE,
)
"""What points at something that only the talk before it names."""
TIME_WORDS = _listed(
    """
    last next this past week weeks weekend month months year years yesterday today tomorrow ago recently lately night
    monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thurs fri sat sun since
    january february march april may june july august september october november december morning evening afternoon
    """
)
PERSON_BEFORE = re.compile(
    r"\b(?:husband|wife|partner|fianc[ée]e?|boyfriend|girlfriend|kid|child|son|daughter|mom|mum|mother|dad|father"
    r"|sister|brother"
    r"|grand\w+|aunt|uncle|cousin|friend|boss|colleague|co-?worker|teammate|coach|mentor|neighbou?r|teacher|doctor"
    r"|roommate"
    r"|baby|toddler|dog|cat|pup(?:py)?|man|woman|guy|girl|boy|lady|artist|author|singer|client|customer|manager|lead"
    r"|veteran)\b"
    r"|(?<![.!?] )(?<!^)\b[A-Z][a-z]+\b"
)
MANY_BEFORE = re.compile(
    r"\b(?!(?:this|was|is|has|his|its|us|as|always|yes|plus|perhaps|sometimes|besides|thus|across)\b)\w{2,}[^s\W]s\b"
    r"|\b(?:people|family|fam|team|kids|children|group|crew|community|company|folks|everyone|parents|police|staff"
    r"|band|couple|class|men"
    r"|women|audience|crowd)\b",
    re.IGNORECASE,
)
HAPPENED_VERB = re.compile(
    r"^(?:[^,]{1,60},\s*)?(?!\w+['’]ve got (?:an?|two|three|four|\d+)\b(?! lot\b))"
    r"(?:(?:I|[Ww]e|[Mm]y \w+(?: \w+)? and I)(?:['’]ve|['’]d| have)?)\s+"
    r"(?:(?:just|also|finally|recently|already|even|actually|really|\w+ly)\s+)*"
    r"(?!used to\b|had (?:a|an|two|three|no)\b|lived|worked|studied|grew|knew|loved|liked|hated|wanted|needed|always)"
    r"(?:went|got|took|made|did|joined|visited|started|finished|began|gave|met|saw|bought|won|lost|moved|signed|ran"
    r"|found|built|came|left"
    r"|quit|set|hit|held|taught|wrote|read|ate|drove|flew|put|sold|sent|spent|told|tried|\w{3,}ed)\b"
)
PLAN = re.compile(
    r"\b(?:I|we)(?:['’]m|['’]re| am| are) (?:\w+ )?(?:planning|thinking (?:of|about)|hoping to"
    r"|looking (?:forward to|to|into|for)|about to|going to|gonna|getting ready|preparing|considering|aiming"
    r"|set to|off to|excited to)\b"
    r"|\b(?:I|we)(?:['’]ll| will| plan| hope to| intend to| want to| would like to|['’]d like to|['’]d love to"
    r"| (?:want|need) (?:the|my|our) (?:\w+ ){1,3}to"
    r"| aim to| need to| have to)\b|\bcan['’]t wait (?:to|for)\b"
    r"|\bgonna\b|\bmy (?:\w+ )?(?:plan|goal|dream|deadline)s? (?:is|are|was|for)\b|\bsave up\b|\bsaving (?:up )?for\b"
    r"|\bsomeday\b",
    re.IGNORECASE,
)
ABOUT = re.compile(
    r"\bI(?:['’]m| am) (?:(?:[A-Z]\w+ ){0,2}[A-Z]\w+[,.]|an? |the |\d|from |in my "
    r"|married|single|engaged|divorced|vegan"
    r"|vegetarian|pregnant|retired|self-employed|allergic)"
    r"|\bI (?:live|lived|work|worked (?:as|at|for|in)|study|studied|own|teach|taught|volunteer"
    r"|grew up|was born|have (?:a|an|two|three|four|five|six|seven|eight|nine|ten|\d+|no|kids|been)"
    r"|used to|play|speak|run a|was (?:a|an|the)"
    r"|always)\b"
    r"|\b[Ww]e have (?:an?|two|three|four|\d+)\b"
    r"|\b(?:I|[Ww]e)['’]ve (?:got (?:an?|two|three|four|\d+)|had|known|lived|worked|been (?:a|an|the|in|with|to"
    r"|married|friends|together))\b"
    r"|\b[Mm]y (?:\w+ )?(?:husband|wife|partner|fianc[ée]e?|boyfriend|girlfriend|kids?|children|son|daughter|mom"
    r"|mum|mother|dad|father|parents|sister|brother|siblings?|grand\w+|aunt|uncle|cousin|family|friend|boss|dog"
    r"|cat|pets?|pup(?:py|s)?|job|career|degree|hometown|home country|name|age|birthday|car|house|apartment"
    r"|roommate|team|studio|store|shop|business|company)\b",
)
PAST = re.compile(
    r"\b(?:went|got|took|made|had|did|was|were|joined|visited|started|finished|began|gave|met|saw|bought|won|lost"
    r"|moved|signed"
    r"|ran|attended|hosted|completed|launched|painted|wrote|read|hiked|applied|passed|failed|hired|quit|left|came"
    r"|found|built"
    r"|kept|wore|drove|ate|sent|spent|broke|fell|brought|taught|caught|paid|rode|sang|sold|swam|threw|woke|flew"
    r"|learned|tried|created|adopted|volunteered|organi[sz]ed|celebrated|hit|set|\w{3,}ed)\b",
    re.IGNORECASE,
)
_BEING = (
    r"^(?:[^,]{1,60},\s*)?(?:I|we)(?:['’]m|['’]re| am| are|(?:['’]ve| have) been)\s+"
    r"(?:(?:just|also|still|now|always|really|even|\w+ly)\s+)*"
)
DOING = re.compile(rf"{_BEING}\w{{2,}}ing\b", re.IGNORECASE)
"""What somebody is at, and has not done yet."""
RELATIVE = re.compile(
    r"\b(?:the|these|those|all|my|our) (?:\w+ ){0,3}\w+s\s+$|\b(?:what|everything|all)\s+$", re.IGNORECASE
)
"""What stands before a clause that only describes it: "the tricks (I learned)"."""
PROPER = re.compile(r"(?<![.!?]\s)(?<!^)\b[A-Z][\w’'+-]*[a-z0-9+]\b|\b[A-Z]{2,}\b|\b[a-z]+[A-Z]\w+")
FIGURE = re.compile(r"\d")
VERBS_BEFORE = re.compile(
    r"\bI(?:['’]\w+)?\s+(?:\w+ly\s+|(?:just|also|still|never|always|even|often|sometimes|once|now|then)\s+)*[\w'’]+"
    r"|^(?:sometimes|often|usually|lately|currently)\b|\bto \w+|^\w+ing\b"
    r"|\bmy \w+ \w+",
    re.IGNORECASE,
)
"""What before a pronoun is no noun that it could stand for."""
POINTS_AT = re.compile(
    r"(?:\w{2,}ing|watch(?:ed)?|saw|see|loved?|liked?|made|bought|read|tried|in|on|at|of|about|for|with|to|from|by"
    r"|like)\s+$",
    re.IGNORECASE,
)
"""What stands before a "that" which points at a thing."""
ENDS_AT = re.compile(
    r"(?:way|time|day|one)?\W*$|(?:in|on|at|for|to|with|too|again|as|about|from|of|by)\b", re.IGNORECASE
)
"""What stands after a "that" which joins nothing."""
