"""Understanding: finds what a working conversation settles, sentence by sentence.

cues         the words of a text, their stems, and cue words
sentences    a message becomes sentences, each with its place in the layout
features     what the models see of a message and of a sentence
model        two small linear models: dialogue acts of a message, items in a sentence
recognizer   a conversation becomes items: decisions, rules, facts, open items, reports of finished work
settling     which item replaces, closes or repeats which
"""
